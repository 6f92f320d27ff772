"""Trains the built-in models of a job file with cairn-worker."""
from __future__ import annotations

import json
import logging
import os
import subprocess
import tempfile
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Union

from cairn import _checks
from cairn._progress import ProgressBar
from cairn.cluster import program
from cairn.errors import BY_CODE, InternalError, InvalidArgumentError

_logger = logging.getLogger("cairn")
_BAR_SECONDS = 1.0
_BAD_INPUT_STATUS = 2  # of the programs: flags, job files, data


class Report(NamedTuple):
    """The result of a run.

    Attributes:
        status: "completed" or "interrupted".
        steps: steps of this run.
        examples: input rows of this run.
        seconds: training time, without start-up and evaluation.
        train_loss: the mean loss of the last 100 steps.
        eval: auc, log_loss, accuracy or rmse, whichever belong to the model's loss; None without
            evaluation rows.
        all: every key of the report's JSON line."""

    status: str
    steps: int
    examples: int
    seconds: float
    train_loss: Optional[float]
    eval: Optional[Dict[str, float]]
    all: Dict[str, Any]


def _report(line: str) -> Report:
    report: Dict[str, Any] = json.loads(line)
    return Report(report["status"], report["steps"], report["examples"], report["seconds"],
                  report.get("train_loss"), report.get("eval"), report)


def _reports(text: str) -> List[Report]:
    """Returns the JSON reports in the programs' output. cairnctl launch writes the task before
    each."""
    found = []
    for line in text.splitlines():
        begin = line.find('{"status"')
        if begin >= 0:
            found.append(_report(line[begin:]))
    return found


def train(job: Union[str, os.PathLike[str], Mapping[str, Any]], *, servers: int = 0,
          workers: int = 1, data_root: Union[str, os.PathLike[str], None] = None,
          overrides: Optional[Mapping[str, Any]] = None, name: Optional[str] = None,
          progress: Optional[bool] = None) -> Report:
    """Trains a job, and returns the first worker's report.

    Args:
        job: a job file, or a dictionary with its keys.
        servers: the number of cairn-ps processes; 0: one server in the worker's own process.
        workers: the number of workers. Several workers need `servers`.
        data_root: the directory to which relative data paths refer. None: that of the job file, or
            for a dictionary the working directory.
        overrides: keys to replace, for example {"data.epochs": 2}.
        name: the run's name on the progress bar. None: the job's name.
        progress: True: show a tqdm bar; False: show none; None: show one if tqdm is installed and
            stderr is a terminal.

    The output of the programs goes to the logger "cairn", including the progress if no bar shows
    it.

    Raises:
        InvalidArgumentError: the job, its data or a path is wrong.
        InternalError: the run failed for another reason."""
    sets = {} if overrides is None else _checks.mapping(overrides, "overrides")
    _checks.integer(servers, "servers", 0, _checks.MOST_SERVERS)
    _checks.integer(workers, "workers", 1, _checks.MOST_WORKERS)
    if progress is not None:
        _checks.flag(progress, "progress")
    described = _checks.mapping(job, "job") if isinstance(job, Mapping) else None
    file_name = "" if described is not None else os.path.basename(_checks.path(
        job, "job", "a job file or a dictionary with its keys"))
    label = (_checks.text(name, "name") if name is not None else
             os.path.splitext(file_name)[0] if described is None else
             _checks.text(described.get("name", "job"), 'job["name"]'))
    with tempfile.TemporaryDirectory(prefix="cairn-job-") as scratch, ProgressBar(
            progress, label, workers) as bar:
        if described is not None:
            path = os.path.join(scratch, "job.yaml")
            described.setdefault("name", label)
            with open(path, "wb") as file:
                file.write(_checks.as_json(described))
            data_root = os.getcwd() if data_root is None else data_root
        else:
            path = os.path.abspath(os.fspath(job))  # type: ignore[arg-type]
        if bar.shown:
            sets.setdefault("output.progress_seconds", _BAR_SECONDS)
        command = _program(path, servers, workers)
        if data_root is not None:
            command += ["--data_root", os.path.abspath(_checks.path(data_root, "data_root"))]
        for key, value in sets.items():
            command += ["--set", f"{key}={_checks.as_json(value).decode()}"]
        terms = {"--set: ": "overrides: ", "--set ": "overrides ", "--data_root ": "data_root "}
        if described is not None:
            terms[f"{path}:1: "] = "job: "
        report = _run(command, bar, terms)
        bar.finish()
        return report


def _program(path: str, servers: int, workers: int) -> List[str]:
    if servers > 0:
        return [program("cairnctl"), "launch", "--job", path, "--ps", str(servers), "--worker",
                str(workers), "--cairn_ps", program("cairn-ps"), "--cairn_worker",
                program("cairn-worker")]
    if workers != 1:
        raise InvalidArgumentError(f"train: {workers} workers need servers, as in servers=2")
    return [program("cairn-worker"), "--job", path]


def _run(command: List[str], bar: ProgressBar, terms: Mapping[str, str]) -> Report:
    """Runs the command to its end. If this call ends early, ends the program too. `terms`: the
    words of this package for those of the programs, for errors."""
    last: List[str] = []
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output, subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE, text=True,
            errors="replace") as process:
        try:
            for line in process.stderr or ():
                text = line.rstrip()
                if not bar.take(text):
                    _logger.info("%s", text)
                last = [*last[-9:], text]
            status = process.wait()
        except BaseException:
            process.terminate()
            raise
        output.seek(0)
        printed = output.read()
    reports = _reports(printed)
    if status == 0 and reports:
        return reports[0]
    problem = "\n".join(last) or f"{os.path.basename(command[0])} ended with status {status}"
    for of_program, own in terms.items():
        problem = problem.replace(of_program, own)
    raise (BY_CODE[InvalidArgumentError.code] if status == _BAD_INPUT_STATUS else
           InternalError)(problem)


__all__ = ["Report", "train"]
