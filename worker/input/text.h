// Makes skip-gram pairs with negative samples from running text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/input/reader_options.h"
#include "worker/input/row_source.h"

namespace cairn {

// The longest sentence. A sentence is a line, cut after this many words (word2vec's limit), so that
// a corpus on one line can be streamed too.
inline constexpr size_t kMaxSentenceWords = 1000;

// Follows word2vec's rules (Mikolov et al., NIPS 2013). Words outside the vocabulary are skipped; a
// word of frequency f is kept with probability (sqrt(f / s) + 1) * s / f, s = model.subsample. Each
// kept word is a center: a radius is drawn from 1 … model.window, and every word within it gives a
// row (center, word) with label 1 and up to model.negatives rows (center, drawn word) with label 0;
// a draw that hits the word itself gives no row. Keys are word numbers of the vocabulary of
// data.train. Center i (counting kept words) belongs to worker i mod workers. Draws depend only on
// the shuffle seed, the epoch and the position in the text.
absl::StatusOr<std::unique_ptr<RowSource>> MakeTextRows(const ReaderOptions& options,
                                                        std::vector<std::string> paths,
                                                        RowShard shard);

}  // namespace cairn
