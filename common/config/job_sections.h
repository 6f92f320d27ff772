// The sections of a job file, one function each; job_config.cc joins them. Internal to this
// directory.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/config/config_node.h"
#include "common/config/job_config.h"

namespace cairn {

// Each reads `section` into `job` and checks what can be checked without other sections.
absl::Status ReadModel(const ConfigNode& section, const std::string& path, JobConfig* job);
absl::Status ReadOptimizer(const ConfigNode& section, const std::string& path, JobConfig* job);
absl::Status ReadStrategy(const ConfigNode& section, const std::string& path, JobConfig* job);
absl::Status ReadRowStorage(const ConfigNode& section, const std::string& path,
                            RowStorageConfig* config);
absl::Status ReadWire(const ConfigNode& section, const std::string& path, WireConfig* config);
absl::Status ReadStorage(const ConfigNode& section, const std::string& path, JobConfig* job);
absl::Status ReadCheckpoint(const ConfigNode& section, const std::string& path, JobConfig* job);
absl::Status ReadEvaluation(const ConfigNode& section, const std::string& path, JobConfig* job);
absl::Status ReadOutput(const ConfigNode& section, const std::string& path, JobConfig* job);
// Paths become absolute or relative to the working directory; globs are expanded and sorted.
// `job_folder` is the folder of the job file.
absl::Status ReadData(const ConfigNode& section, const std::string& path,
                      const std::string& job_folder, const JobOptions& options, DataConfig* data);

// An optimizer by itself, with the keys of section `optimizer` that describe an optimizer, or its
// type alone as a word. "none" is a type too: no push may move the variable. global_clipnorm, which
// is of several variables, is refused.
absl::Status ReadOneOptimizer(const ConfigNode& value, const std::string& path,
                              OptimizerConfig* optimizer);
// An initializer as in model.init: its type as a word, or {type: normal, stddev: 0.05}.
absl::Status ReadInitializer(const ConfigNode& value, const std::string& path, bool is_embedding,
                             InitializerConfig* out);

// Checks and defaults that need several sections. `root` is the file, for positions in messages.
absl::Status FinishModel(const ConfigNode& root, JobConfig* job);
absl::Status FinishData(const ConfigNode& root, JobConfig* job);
// Reports every given key that has no effect in this job: refuses it, or adds it to job->warnings.
absl::Status CheckKeyUses(const ConfigNode& root, JobConfig* job);
void FinishOptimizer(JobConfig* job);
absl::Status FinishStrategy(const ConfigNode& root, JobConfig* job);

// "job.yaml:7: model.classes: " + why, kInvalidArgument.
absl::Status JobError(const ConfigNode& root, absl::string_view path, absl::string_view why);

}  // namespace cairn
