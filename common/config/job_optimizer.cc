// Section `optimizer`.
#include <algorithm>
#include <utility>

#include "common/config/job_sections.h"
#include "common/config/section_reader.h"
#include "common/errors.h"
#include "common/optimizer/rules.h"
#include "common/status.h"

namespace cairn {
namespace {

Names OptimizerTypes() {
  Names types;
  for (const OptimizerRule& rule : OptimizerRules()) types.push_back(rule.type);
  return types;
}

// The arguments of all optimizers, by their Keras names, each once. Optimizer::Create knows which
// arguments a type has and their ranges.
Names OptimizerArguments() {
  Names names;
  for (const OptimizerRule& rule : OptimizerRules()) {
    for (const ArgumentSpec& argument : rule.arguments) {
      if (std::ranges::find(names, argument.name) == names.end()) names.push_back(argument.name);
    }
  }
  return names;
}

absl::Status ReadNumbers(const ConfigNode& value, const std::string& path,
                         std::vector<double>* out) {
  return ReadList(value, path, "a list of numbers", ReadNumber, out);
}

// Reads a number, or {type: exponential_decay, …} with Keras' arguments.
absl::Status ReadLearningRate(const ConfigNode& value, const std::string& path,
                              ScheduleConfig* schedule) {
  if (value.kind == ConfigNode::Kind::kScalar) {
    double rate = 0;
    RETURN_IF_ERROR(NumberFrom("", 0, &rate).read(value, path));
    *schedule = ConstantRate(rate);
    return absl::OkStatus();
  }
  if (value.kind != ConfigNode::Kind::kMap) {
    return Unexpected(value, path,
                      "a number, or a schedule as in {type: cosine_decay, "
                      "initial_learning_rate: 0.1, decay_steps: 1000}");
  }
  ScheduleConfig result;
  result.type = "";
  for (const ConfigNode& member : value.children) {
    const std::string at = absl::StrCat(path, ".", member.key);
    if (member.key == "type") {
      RETURN_IF_ERROR(ReadText(member, at, &result.type));
    } else if (member.key == "boundaries") {
      RETURN_IF_ERROR(ReadNumbers(member, at, &result.boundaries));
    } else if (member.key == "values") {
      RETURN_IF_ERROR(ReadNumbers(member, at, &result.values));
    } else if (member.kind != ConfigNode::Kind::kEmpty && member.text != "None") {
      RETURN_IF_ERROR(ReadArgument(member, at, &result.arguments[member.key]));
    }
  }
  const absl::Status valid = ValidateSchedule(result);
  if (!valid.ok()) {
    return Annotate(valid, absl::StrCat(WhereMentioned(value, valid.message()), ": ", path));
  }
  *schedule = std::move(result);
  return absl::OkStatus();
}

std::vector<Field> OptimizerFields(OptimizerConfig* config) {
  std::vector<Field> fields = {
      Choice("type", &config->type, OptimizerTypes()),
      Value("learning_rate", ReadLearningRate, &config->learning_rate),
  };
  for (const absl::string_view name : OptimizerArguments()) {
    fields.push_back(Custom(name, [config, name](const ConfigNode& value, const std::string& path) {
      // Keras' None: the same as omitting the key.
      if (value.kind == ConfigNode::Kind::kEmpty) return absl::OkStatus();
      return ReadArgument(value, path, &config->arguments[std::string(name)]);
    }));
  }
  for (auto [name, out] :
       {std::pair{"clipvalue", &config->clipvalue}, std::pair{"clipnorm", &config->clipnorm},
        std::pair{"global_clipnorm", &config->global_clipnorm}}) {
    fields.push_back(Custom(name, [out = out](const ConfigNode& value, const std::string& path) {
      if (value.kind == ConfigNode::Kind::kEmpty) return absl::OkStatus();
      return NumberAbove("", 0, out).read(value, path);
    }));
  }
  for (const absl::string_view name : {"use_ema", "ema_momentum", "ema_overwrite_frequency",
                                       "gradient_accumulation_steps", "loss_scale_factor"}) {
    fields.push_back(NotBuilt(name, "leave it out"));
  }
  return fields;
}

absl::Status CheckOptimizer(const ConfigNode& section, const std::string& path,
                            const OptimizerConfig& config) {
  const absl::Status status = Optimizer::Create(config).status();
  return Annotate(status, absl::StrCat(WhereMentioned(section, status.message()), ": ", path));
}

absl::Status ReadPerVariable(const ConfigNode& value, const std::string& path,
                             std::vector<OptimizerOverride>* out) {
  return ReadMatches(
      value, path, "{match: \"wide/*\", type: ftrl}", "variables, as in \"wide/*\"",
      [](OptimizerOverride* entry) { return OptimizerFields(&entry->optimizer); },
      [](const ConfigNode& section, const std::string& at, const OptimizerOverride& entry) {
        if (section.Find("type") == nullptr) {
          return InvalidArgument(section.where, ": ", at, ": needs type (an optimizer)");
        }
        if (entry.optimizer.global_clipnorm > 0) {
          return InvalidArgument(
              WhereOf(section, "global_clipnorm"), ": ", at,
              ".global_clipnorm: is the norm of all variables together; give it in optimizer");
        }
        return CheckOptimizer(section, at, entry.optimizer);
      },
      out);
}

}  // namespace

absl::Status ReadOneOptimizer(const ConfigNode& value, const std::string& path,
                              OptimizerConfig* optimizer) {
  OptimizerConfig config;
  if (value.kind == ConfigNode::Kind::kScalar) {
    if (value.text != "none") {
      RETURN_IF_ERROR(Choice("", &config.type, OptimizerTypes()).read(value, path));
    } else {
      config.type = value.text;
    }
  } else {
    RETURN_IF_ERROR(ReadSection(value, path, OptimizerFields(&config)));
    if (config.global_clipnorm > 0) {
      return InvalidArgument(WhereOf(value, "global_clipnorm"), ": ", path,
                             ".global_clipnorm: is the norm of all variables together, which only "
                             "the trainer of job files computes: use clipnorm, or clip the "
                             "gradients before the push");
    }
  }
  RETURN_IF_ERROR(CheckOptimizer(value, path, config));
  *optimizer = std::move(config);
  return absl::OkStatus();
}

absl::Status ReadOptimizer(const ConfigNode& section, const std::string& path, JobConfig* job) {
  std::vector<Field> fields = OptimizerFields(&job->optimizer);
  fields.push_back(Value("per_variable", ReadPerVariable, &job->per_variable));
  fields.push_back(Choice("not_finite", &job->not_finite, {"reject", "skip"}));
  fields.push_back(Choice("divergence", &job->divergence, {"stop", "ignore"}));
  RETURN_IF_ERROR(ReadSection(section, path, fields));
  return CheckOptimizer(section, path, job->optimizer);
}

void FinishOptimizer(JobConfig* job) {
  if (job->model.type != "wide_deep") return;
  // The wide part's entry comes last, so that the job's own entries take precedence.
  OptimizerOverride wide;
  wide.match = "wide/*";
  wide.optimizer.type = "ftrl";
  wide.optimizer.learning_rate = job->optimizer.learning_rate;
  wide.optimizer.clipvalue = job->optimizer.clipvalue;
  wide.optimizer.clipnorm = job->optimizer.clipnorm;
  job->per_variable.push_back(std::move(wide));
}

bool MatchesPattern(absl::string_view pattern, absl::string_view name) {
  size_t p = 0, n = 0, star = absl::string_view::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p, ++n;
    } else if (star != absl::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

const OptimizerConfig& OptimizerFor(const JobConfig& job, absl::string_view variable) {
  for (const OptimizerOverride& entry : job.per_variable) {
    if (MatchesPattern(entry.match, variable)) return entry.optimizer;
  }
  return job.optimizer;
}

}  // namespace cairn
