#include "worker/trainer/joint/joint_settings.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/trainer/joint/group_text.h"

namespace cairn {
namespace {

std::string NamesOf(absl::Span<const DataFile> files) {
  return absl::StrJoin(files, ",", [](std::string* out, const DataFile& file) {
    absl::StrAppend(out, std::filesystem::path(file.path).filename().string());
  });
}

}  // namespace

std::vector<std::string> JointSettings(const JobConfig& job, bool fresh,
                                       absl::Span<const VariableSpec> specs) {
  std::vector<std::string> all;
  const auto add = [&all](absl::string_view key, const auto& value) {
    all.push_back(absl::StrCat(key, ": ", value));
  };
  const DataConfig& data = job.data;
  add("name", job.name);
  add("model.type", job.model.type);
  add("model.loss", job.model.loss);
  add("data.format", data.format);
  add("data.train", NamesOf(data.train));
  add("data.batch_size", data.batch_size);
  add("data.epochs", data.epochs);
  add("data.max_steps", data.max_steps);
  add("data.drop_remainder", data.drop_remainder);
  add("data.shuffle.buffer_rows", data.shuffle_buffer_rows);
  add("data.shuffle.seed", data.shuffle_seed);
  add("data.auto_shard", data.auto_shard);
  add("optimizer.global_clipnorm", job.optimizer.global_clipnorm);
  add("optimizer.not_finite", job.not_finite);
  add("strategy.pull_ahead_steps", job.strategy.pull_ahead_steps);
  add("strategy.communication.implementation", job.strategy.communication.implementation);
  add("strategy.cross_device_ops", job.strategy.cross_device_ops);
  add("strategy.communication.bytes_per_pack", job.strategy.communication.bytes_per_pack);
  add("checkpoint.every_steps", job.checkpoint.every_steps);
  add("evaluation.every_steps", job.evaluation.every_steps);
  add("data.eval is given", data.eval.empty() ? "no" : "yes");
  add("checkpoint.warm_start.from", job.checkpoint.warm_start.from.empty() ? "" : "a checkpoint");
  add("--fresh", fresh ? "yes" : "no");
  for (const VariableSpec& spec : specs) add("a variable", SpecText(spec));
  return all;
}

absl::Status CheckSameSettings(CollectiveGroup& group, absl::Span<const std::string> own,
                               absl::Duration timeout) {
  ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                   GatherTexts(group, absl::StrJoin(own, "\n"), timeout));
  const std::vector<std::string> first = absl::StrSplit(texts[0], '\n');
  for (int rank = 1; rank < group.size(); ++rank) {
    const std::vector<std::string> other = absl::StrSplit(texts[static_cast<size_t>(rank)], '\n');
    const size_t common = std::min(first.size(), other.size());
    const auto [a, b] =
        std::mismatch(first.begin(), first.begin() + static_cast<ptrdiff_t>(common), other.begin());
    const bool at_end = a == first.begin() + static_cast<ptrdiff_t>(common);
    if (at_end && first.size() == other.size()) continue;
    return InvalidArgument("workers that train as one need the same job: worker 0 (", group.peer(0),
                           ") has ", at_end ? absl::StrCat(first.size(), " settings") : *a,
                           ", worker ", rank, " (", group.peer(rank), ") ",
                           at_end ? absl::StrCat(other.size(), " settings") : *b,
                           "; start all of them with one job file and the same flags");
  }
  return absl::OkStatus();
}

}  // namespace cairn
