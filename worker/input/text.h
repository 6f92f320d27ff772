// Skip-gram pairs with negative samples from running text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/input/reader_options.h"
#include "worker/input/row_source.h"

namespace cairn {

// Words of a sentence: a line, cut after this many (word2vec's limit), so that a corpus on one line
// streams as well.
inline constexpr size_t kMaxSentenceWords = 1000;

// word2vec's rules (Mikolov et al., NIPS 2013). Words outside the vocabulary are passed over; one
// of frequency f is kept with probability (sqrt(f / s) + 1) * s / f, s = model.subsample. Each word
// is a center in turn: a radius is drawn from 1 … model.window, every word within it gives a row
// (center, word) with label 1 and up to model.negatives rows (center, drawn word) with label 0; a
// draw that hits the word itself gives none. Keys are word numbers of the vocabulary of data.train.
// Center i (after thinning) belongs to worker i mod workers. Draws depend on the shuffle seed, the
// epoch and the place in the text alone.
absl::StatusOr<std::unique_ptr<RowSource>> MakeTextRows(const ReaderOptions& options,
                                                        std::vector<std::string> paths,
                                                        RowShard shard);

}  // namespace cairn
