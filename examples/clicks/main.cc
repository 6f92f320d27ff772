// cairn-make-clicks: click logs in Criteo's format, drawn from a known truth, so that the best
// possible AUC is known. Prints one JSON line: rows, click_rate, bayes_auc.
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "common/config/cli.h"
#include "examples/clicks/ground_truth.h"
#include "worker/ops/metrics.h"

namespace {

struct Options {
  int64_t rows = 100000;
  uint64_t seed = 1;
  uint64_t truth_seed = 1;
  std::string out;
  std::string truth;
};

cairn::ParsedLine ReadOptions(int argc, char** argv, Options* options) {
  cairn::Program program(
      "cairn-make-clicks",
      "cairn-make-clicks writes click logs in Criteo's format, drawn from a known truth.\n",
      "Example:\n"
      "  cairn-make-clicks --rows 400000 --seed 1 --out train.tsv\n"
      "  cairn-make-clicks --rows 40000 --seed 2 --out eval.tsv\n\n"
      "The last line of stdout is one JSON object: rows, click_rate, bayes_auc.");
  program.flags()
      .Add("out", "FILE", options->out,
           "file to write; compressed if its name ends in .gz; required")
      .Add("rows", "N", options->rows, "rows to write; default 100000")
      .Add("seed", "N", options->seed,
           "which log: another seed draws other rows of the same truth; default 1")
      .Add("truth_seed", "N", options->truth_seed,
           "which truth: the effect of each token and count; default 1")
      .Add("truth", "FILE", options->truth,
           "gets each row's true click probability, one a line, in the order of cairn-worker's "
           "predictions");
  return program.Parse(absl::MakeConstSpan(argv + 1, static_cast<size_t>(argc - 1)));
}

int Refuse(absl::string_view text) {
  std::fprintf(stderr, "cairn-make-clicks: %.*s\n", static_cast<int>(text.size()), text.data());
  return 2;
}

// A text file, compressed where the name says so. zlib writes plain files too.
class TextFile {
 public:
  bool Open(const std::string& path) {
    file_ = gzopen(path.c_str(), absl::EndsWith(path, ".gz") ? "wb6" : "wbT");
    path_ = path;
    return file_ != nullptr || Fail();
  }
  bool Write(const std::string& text) {
    return gzwrite(file_, text.data(), static_cast<unsigned>(text.size())) ==
               static_cast<int>(text.size()) ||
           Fail();
  }
  bool Close() { return gzclose(file_) == Z_OK || Fail(); }

 private:
  bool Fail() {
    std::fprintf(stderr, "cairn-make-clicks: %s: %s\n", path_.c_str(), std::strerror(errno));
    return false;
  }
  gzFile file_ = nullptr;
  std::string path_;
};

void AppendRow(const cairn::clicks::Row& row, std::string* text) {
  text->push_back(row.clicked ? '1' : '0');
  for (const int64_t count : row.counts) {
    text->push_back('\t');
    if (count != cairn::clicks::kMissing) absl::StrAppend(text, count);
  }
  for (int c = 0; c < cairn::clicks::kCategories; ++c) {
    text->push_back('\t');
    if (row.ranks[c] == cairn::clicks::kMissing) continue;
    const uint32_t token = cairn::clicks::GroundTruth::Token(c, row.ranks[c]);
    absl::StrAppend(text, absl::Hex(token, absl::kZeroPad8));
  }
  text->push_back('\n');
}

// Writes the log; labels and the probabilities they were drawn from come back.
bool WriteLog(const Options& options, std::vector<float>* labels, std::vector<float>* scores) {
  TextFile log, truth;
  if (!log.Open(options.out)) return false;
  if (!options.truth.empty() && !truth.Open(options.truth)) return false;
  const cairn::clicks::GroundTruth world(options.truth_seed);
  std::string text, truths;
  constexpr size_t kChunkBytes = size_t{1} << 20;
  for (int64_t i = 0; i < options.rows; ++i) {
    const cairn::clicks::Row row = world.Draw(options.seed, static_cast<uint64_t>(i));
    labels->push_back(row.clicked ? 1.0f : 0.0f);
    scores->push_back(static_cast<float>(row.probability));
    AppendRow(row, &text);
    if (!options.truth.empty()) absl::StrAppendFormat(&truths, "%.6f\n", row.probability);
    if (text.size() < kChunkBytes && i + 1 < options.rows) continue;
    if (!log.Write(text)) return false;
    if (!truths.empty() && !truth.Write(truths)) return false;
    text.clear();
    truths.clear();
  }
  return log.Close() && (options.truth.empty() || truth.Close());
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  const cairn::ParsedLine line = ReadOptions(argc, argv, &options);
  if (!line.status.ok()) return Refuse(line.status.message());
  if (!line.text.empty()) return cairn::PrintText(line.text);
  if (options.out.empty() || options.rows < 1) {
    return Refuse("needs --out FILE and --rows of at least 1; --help lists the flags");
  }
  std::vector<float> labels, scores;
  if (!WriteLog(options, &labels, &scores)) return 1;
  const auto clicks = std::count(labels.begin(), labels.end(), 1.0f);
  const double auc = cairn::Auc(labels, scores);
  // No AUC where every row, or none, was clicked.
  std::printf("{\"rows\":%lld,\"click_rate\":%.4f,\"bayes_auc\":%s}\n",
              static_cast<long long>(options.rows),
              static_cast<double>(clicks) / static_cast<double>(options.rows),
              auc == auc ? absl::StrFormat("%.4f", auc).c_str() : "null");
  return 0;
}
