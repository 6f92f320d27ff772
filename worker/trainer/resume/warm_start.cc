#include "worker/trainer/resume/warm_start.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/dtype.h"
#include "common/errors.h"
#include "common/exit_status.h"
#include "common/log.h"
#include "common/shape.h"
#include "common/status.h"
#include "worker/trainer/resume/job_restore.h"

namespace cairn {
namespace {

// Bytes of values in one call: far below every message limit, and held in memory twice.
constexpr size_t kBlockBytes = 16 << 20;

struct Copy {
  PsClient& source;
  PsClient& client;
  absl::Duration call_timeout;

  absl::Status Dense(const VariableSpec& spec) const {
    ASSIGN_OR_RETURN(const int64_t count, ElementCount(spec.shape));
    const size_t bytes = static_cast<size_t>(count) * DTypeBytes(spec.dtype);
    std::vector<std::byte> values(std::min(bytes, kBlockBytes));
    if (bytes <= kBlockBytes) return Block(spec, Part::kWhole, {}, absl::MakeSpan(values));
    const int64_t rows = spec.shape[0];
    const size_t row_bytes = bytes / static_cast<size_t>(rows);
    const int64_t block = static_cast<int64_t>(std::max(kBlockBytes / row_bytes, size_t{1}));
    std::vector<int64_t> ids;
    for (int64_t first = 0; first < rows; first += block) {
      ids.resize(static_cast<size_t>(std::min(block, rows - first)));
      std::iota(ids.begin(), ids.end(), first);
      values.resize(ids.size() * row_bytes);
      RETURN_IF_ERROR(Block(spec, Part::kRows, ids, absl::MakeSpan(values)));
    }
    return absl::OkStatus();
  }

  absl::Status Block(const VariableSpec& spec, Part part, absl::Span<const int64_t> ids,
                     absl::Span<std::byte> values) const {
    RETURN_IF_ERROR(source.Pull({{.variable = spec.name, .part = part, .ids = ids, .out = values}},
                                Deadline::In(call_timeout)));
    return client.Assign({{.variable = spec.name, .part = part, .ids = ids, .values = values}},
                         Deadline::In(call_timeout));
  }

  absl::Status Table(const VariableSpec& spec) const {
    std::vector<int64_t> keys;
    std::vector<std::byte> rows;
    absl::Status assigned;
    const auto assign = [&] {
      if (keys.empty() || !assigned.ok()) return;
      assigned =
          client.Assign({{.variable = spec.name, .part = Part::kKeys, .ids = keys, .values = rows}},
                        Deadline::In(call_timeout));
      keys.clear();
      rows.clear();
    };
    const auto add = [&](int64_t key, absl::Span<const std::byte> values) {
      keys.push_back(key);
      rows.insert(rows.end(), values.begin(), values.end());
      if (rows.size() + keys.size() * sizeof(key) >= kBlockBytes) assign();
    };
    RETURN_IF_ERROR(source.Scan(spec.name, add, Deadline::In(kRestoreTimeout)));
    assign();
    return assigned;
  }
};

absl::Status BadWarmStart(const WarmStartConfig& config, absl::string_view why) {
  return AsBadInput(InvalidArgument("checkpoint.warm_start from ", config.from, ": ", why));
}

// The variables of `specs` to take from the checkpoint, which holds `there`.
absl::StatusOr<std::vector<VariableSpec>> Choose(const WarmStartConfig& config,
                                                 absl::Span<const VariableSpec> specs,
                                                 absl::Span<const VariableSpec> there) {
  std::vector<VariableSpec> chosen;
  std::vector<std::string> absent;
  for (const std::string& pattern : config.variables) {
    const bool some = absl::StrContains(pattern, '*');
    bool used = false;
    for (const VariableSpec& spec : specs) {
      if (!MatchesPattern(pattern, spec.name)) continue;
      used = true;
      const auto same_name = [&](const VariableSpec& other) { return other.name == spec.name; };
      if (std::ranges::any_of(chosen, same_name)) continue;
      const auto found = std::ranges::find_if(there, same_name);
      if (found == there.end()) {
        if (!some) {
          return BadWarmStart(config, absl::StrCat("it has no variable '", spec.name, "'"));
        }
        absent.push_back(spec.name);
      } else if (found->kind != spec.kind || found->dtype != spec.dtype ||
                 found->shape != spec.shape) {
        return BadWarmStart(
            config, absl::StrCat("variable '", spec.name, "' is ", SpecText(*found), " there and ",
                                 SpecText(spec),
                                 " in this job: leave it out of checkpoint.warm_start.variables"));
      } else {
        chosen.push_back(spec);
      }
    }
    if (!used) {
      return BadWarmStart(
          config, absl::StrCat("'", pattern,
                               "' is no variable of this job, whose "
                               "variables are ",
                               absl::StrJoin(specs, ", ", [](std::string* out, const auto& s) {
                                 out->append(s.name);
                               })));
    }
  }
  if (chosen.empty()) return BadWarmStart(config, "it has none of the named variables");
  if (!absent.empty()) {
    LOG(INFO) << "warm start: not in the checkpoint, so they keep their initial values: "
              << absl::StrJoin(absent, ", ");
  }
  return chosen;
}

}  // namespace

absl::Status WarmStart(PsClient& source, const WarmStartConfig& config,
                       absl::Span<const VariableSpec> specs, PsClient& client,
                       absl::Duration call_timeout) {
  const absl::Duration begin = MonotonicNow();
  ASSIGN_OR_RETURN(const std::vector<VariableSpec> there,
                   source.Describe(Deadline::In(call_timeout)));
  ASSIGN_OR_RETURN(const std::vector<VariableSpec> chosen, Choose(config, specs, there));
  const Copy copy{source, client, call_timeout};
  for (const VariableSpec& spec : chosen) {
    RETURN_IF_ERROR(
        Annotate(spec.kind == VariableKind::kDense ? copy.Dense(spec) : copy.Table(spec),
                 absl::StrCat("warm start of '", spec.name, "'")));
  }
  RETURN_IF_ERROR(client.Flush(Deadline::In(call_timeout)));
  LOG(INFO) << "warm start: values of " << chosen.size() << " variables from " << config.from
            << ", in " << absl::FormatDuration(MonotonicNow() - begin);
  return absl::OkStatus();
}

}  // namespace cairn
