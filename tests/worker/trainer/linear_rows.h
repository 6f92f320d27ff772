// Rows to train on.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/config/job_config.h"
#include "worker/input/random.h"

namespace cairn::test {

// Writes rows of libsvm whose label is the sign of a known linear function.
inline void WriteLinearRows(const std::string& path, int64_t rows, int64_t columns) {
  std::ofstream out(path);
  Random random(5);
  for (int64_t i = 0; i < rows; ++i) {
    double score = 0;
    std::string row;
    for (int64_t c = 0; c < columns; ++c) {
      const double x = random.Uniform() * 2 - 1;
      score += x * static_cast<double>(c - 3);
      absl::StrAppend(&row, " ", c + 1, ":", x);
    }
    out << (score > 0 ? 1 : 0) << row << "\n";
  }
}

// The job "j": a linear model of such rows in `path`, in batches of 50, which trains and evaluates
// on them.
inline JobConfig LinearJob(const std::string& path, int64_t columns) {
  JobConfig job;
  job.name = "j";
  job.model.type = "linear";
  job.model.loss = "sigmoid_cross_entropy";
  job.data.format = "libsvm";
  job.data.features = columns;
  job.data.batch_size = 50;
  job.data.train = job.data.eval = {{path, ""}};
  job.optimizer.learning_rate = ConstantRate(0.05);
  return job;
}

}  // namespace cairn::test
