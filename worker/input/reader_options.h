// Options: which rows of the input a reader yields, and where it begins.
#pragma once

#include <cstdint>
#include <vector>

#include "common/config/job_config.h"

namespace cairn {

struct ReaderOptions {
  DataConfig data;              // formats, files (already expanded), batch size, shuffle
  std::vector<DataFile> files;  // data.train or data.eval
  // The loss decides how labels are read: sigmoid_cross_entropy takes -1/+1 and 0/1,
  // softmax_cross_entropy integers in [label_base, label_base + classes), mean_squared_error any
  // number. text: window, negatives and min_count; the vocabulary is always that of data.train.
  // Criteo: with tables: shared_vocabulary the key of a token is the same in every column.
  ModelConfig model;
  bool training = true;  // shuffles and repeats `epochs` times; false: one pass in order
  int32_t worker = 0;    // row i goes to worker i mod workers, or whole files (auto)
  int32_t workers = 1;
  int64_t start_epoch = 0;  // resume position
  int64_t start_row = 0;    // number of this worker's rows in that epoch
};

}  // namespace cairn
