// The C interface: pulls, pushes, steps and assignments.
#include <cstdint>

#include "absl/strings/string_view.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/capi/c.h"
#include "worker/capi/call.h"
#include "worker/capi/items.h"

namespace cairn::capi {
namespace {

// The arguments of a call that moves data.
struct Data {
  const cairn_item* sources = nullptr;
  uint64_t source_count = 0;
  const char* position = nullptr;
  uint64_t position_size = 0;
  const cairn_item* targets = nullptr;
  uint64_t target_count = 0;
};

// Runs `body` with the checked views of `data`.
int RunData(absl::string_view function, const cairn_client* handle, const Data& data,
            double timeout,
            absl::FunctionRef<absl::Status(PsClient&, const Sources&, absl::string_view position,
                                           const Targets&, Deadline)>
                body) {
  return RunWith(function, handle, timeout, [&](Client& client, Deadline deadline) -> absl::Status {
    Sources sources;
    Targets targets;
    const auto check = [&]() -> absl::StatusOr<absl::string_view> {
      RETURN_IF_ERROR(ToSources(client, data.sources, data.source_count, &sources));
      RETURN_IF_ERROR(ToTargets(client, data.targets, data.target_count, &targets));
      return ToPosition(data.position, data.position_size);
    };
    const absl::StatusOr<absl::string_view> position = check();
    if (!position.ok()) return Annotate(position.status(), function);
    return body(*client.ps, sources, *position, targets, deadline);
  });
}

absl::Status CheckRows(int64_t rows) {
  if (rows > 0) return absl::OkStatus();
  return InvalidArgument("step: rows is ", rows, "; expected the rows of input, at least 1");
}

}  // namespace

using absl::string_view;

extern "C" {

int cairn_pull(cairn_client* client, const cairn_item* targets, uint64_t target_count,
               double timeout) {
  return RunData("cairn_pull", client, {.targets = targets, .target_count = target_count}, timeout,
                 [](PsClient& ps, const Sources&, string_view, const Targets& to, Deadline end) {
                   return ps.Pull(to, end);
                 });
}

int cairn_push(cairn_client* client, const cairn_item* sources, uint64_t source_count,
               const char* position, uint64_t position_size, double timeout) {
  return RunData("cairn_push", client, {sources, source_count, position, position_size}, timeout,
                 [](PsClient& ps, const Sources& from, string_view at, const Targets&,
                    Deadline end) { return ps.Push(from, at, end); });
}

int cairn_push_pull(cairn_client* client, const cairn_item* sources, uint64_t source_count,
                    const char* position, uint64_t position_size, const cairn_item* targets,
                    uint64_t target_count, double timeout) {
  return RunData("cairn_push_pull", client,
                 {sources, source_count, position, position_size, targets, target_count}, timeout,
                 [](PsClient& ps, const Sources& from, string_view at, const Targets& to,
                    Deadline end) { return ps.PushPull(from, at, to, end); });
}

int cairn_step(cairn_client* client, const cairn_item* sources, uint64_t source_count,
               const char* position, uint64_t position_size, const cairn_item* targets,
               uint64_t target_count, int64_t rows, double timeout) {
  return RunData("cairn_step", client,
                 {sources, source_count, position, position_size, targets, target_count}, timeout,
                 [rows](PsClient& ps, const Sources& from, string_view at, const Targets& to,
                        Deadline end) -> absl::Status {
                   RETURN_IF_ERROR(CheckRows(rows));
                   return ps.Step(from, at, to, end, rows);
                 });
}

int cairn_end_step(cairn_client* client, const cairn_item* sources, uint64_t source_count,
                   const char* position, uint64_t position_size, int64_t rows, double timeout) {
  return RunData("cairn_end_step", client, {sources, source_count, position, position_size},
                 timeout,
                 [rows](PsClient& ps, const Sources& from, string_view at, const Targets&,
                        Deadline end) -> absl::Status {
                   RETURN_IF_ERROR(CheckRows(rows));
                   return ps.EndStep(from, at, rows, end);
                 });
}

int cairn_end_steps(cairn_client* client, double timeout) {
  return RunWith("cairn_end_steps", client, timeout,
                 [](Client& c, Deadline deadline) { return c.ps->EndSteps(deadline); });
}

int cairn_largest_step_gap(cairn_client* client, double timeout, int64_t* steps) {
  return RunWith("cairn_largest_step_gap", client, timeout,
                 [&](Client& c, Deadline deadline) -> absl::Status {
                   RETURN_IF_ERROR(CheckNotNull(steps, "steps"));
                   ASSIGN_OR_RETURN(*steps, c.ps->LargestStepGap(deadline));
                   return absl::OkStatus();
                 });
}

int cairn_assign(cairn_client* client, const cairn_item* sources, uint64_t source_count,
                 double timeout) {
  return RunData("cairn_assign", client, {sources, source_count}, timeout,
                 [](PsClient& ps, const Sources& from, string_view, const Targets&, Deadline end) {
                   return ps.Assign(from, end);
                 });
}

}  // extern "C"

}  // namespace cairn::capi
