#include "worker/input/open_row_source.h"

#include <utility>
#include <vector>

#include "common/errors.h"
#include "common/status.h"
#include "worker/input/idx.h"
#include "worker/input/line_reader.h"
#include "worker/input/line_rows.h"
#include "worker/input/text.h"

namespace cairn {
namespace {

// The part of the input that one worker reads.
struct Share {
  std::vector<DataFile> files;
  RowShard rows;
};

absl::StatusOr<Share> ShareOf(const ReaderOptions& options) {
  const size_t workers = static_cast<size_t>(options.workers);
  const size_t count = options.files.size();
  const std::string& policy = options.data.auto_shard;
  Share share{options.files, {}};
  if (workers <= 1 || policy == "off") return share;
  if (policy == "file" && count < workers) {
    return InvalidArgument(
        "data.auto_shard is file, but there are ", count, " files for ", workers,
        " workers; use data (row i goes to worker i mod workers), or more files");
  }
  if (policy == "file" || (policy == "auto" && count >= workers)) {
    share.files.clear();
    for (size_t i = static_cast<size_t>(options.worker); i < count; i += workers) {
      share.files.push_back(options.files[i]);
    }
    return share;
  }
  share.rows = {options.worker, options.workers};
  return share;
}

absl::StatusOr<std::unique_ptr<LineParser>> MakeParser(const ReaderOptions& options) {
  const std::string& format = options.data.format;
  if (format == "libsvm") return MakeLibsvmParser(options);
  if (format == "criteo_tsv") return MakeCriteoParser(options, '\t');
  if (format == "criteo_csv") return MakeCriteoParser(options, ',');
  if (format == "movielens") return MakeMovielensParser(options);
  if (format != "csv") {
    return InvalidArgument(
        "data.format is '", format,
        "'; known are libsvm, criteo_tsv, criteo_csv, csv, idx, text, movielens");
  }
  // The first nonblank line determines the number of cells for all workers.
  for (const DataFile& file : options.files) {
    ASSIGN_OR_RETURN(const std::unique_ptr<LineReader> reader, LineReader::Open(file.path));
    absl::string_view line;
    while (reader->Next(&line)) {
      if (!IsBlankLine(line)) return MakeCsvParser(options, line, file.path);
    }
    RETURN_IF_ERROR(reader->status());
  }
  return InvalidArgument(options.files.front().path,
                         " has no line, nor has another file: the first one "
                         "says how many columns there are");
}

}  // namespace

absl::StatusOr<std::unique_ptr<RowSource>> OpenRowSource(const ReaderOptions& options) {
  if (options.files.empty()) return absl::InvalidArgumentError("no input files are given");
  ASSIGN_OR_RETURN(Share share, ShareOf(options));
  if (options.data.format == "idx") return MakeIdxRows(options, std::move(share.files), share.rows);
  std::vector<std::string> paths;
  for (DataFile& file : share.files) paths.push_back(std::move(file.path));
  if (options.data.format == "text") return MakeTextRows(options, std::move(paths), share.rows);
  ASSIGN_OR_RETURN(std::unique_ptr<LineParser> parser, MakeParser(options));
  return MakeLineRows(std::move(paths), share.rows, std::move(parser));
}

}  // namespace cairn
