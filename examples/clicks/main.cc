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

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "examples/clicks/ground_truth.h"
#include "worker/ops/metrics.h"

ABSL_FLAG(int64_t, rows, 100000, "rows to write");
ABSL_FLAG(uint64_t, seed, 1, "which log: other seeds give other rows of the same world");
ABSL_FLAG(uint64_t, truth_seed, 1, "which world: what the tokens and counts mean");
ABSL_FLAG(std::string, out, "", "file to write; compressed if it ends in .gz");
ABSL_FLAG(std::string, truth, "",
          "file for each row's true click probability, one a line (cairn-worker's predictions "
          "have the same order)");

namespace {

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
bool WriteLog(int64_t rows, std::vector<float>* labels, std::vector<float>* scores) {
  TextFile log, truth;
  const std::string truth_path = absl::GetFlag(FLAGS_truth);
  if (!log.Open(absl::GetFlag(FLAGS_out))) return false;
  if (!truth_path.empty() && !truth.Open(truth_path)) return false;
  const cairn::clicks::GroundTruth world(absl::GetFlag(FLAGS_truth_seed));
  const uint64_t seed = absl::GetFlag(FLAGS_seed);
  std::string text, truths;
  constexpr size_t kChunkBytes = size_t{1} << 20;
  for (int64_t i = 0; i < rows; ++i) {
    const cairn::clicks::Row row = world.Draw(seed, static_cast<uint64_t>(i));
    labels->push_back(row.clicked ? 1.0f : 0.0f);
    scores->push_back(static_cast<float>(row.probability));
    AppendRow(row, &text);
    if (!truth_path.empty()) absl::StrAppendFormat(&truths, "%.6f\n", row.probability);
    if (text.size() < kChunkBytes && i + 1 < rows) continue;
    if (!log.Write(text)) return false;
    if (!truths.empty() && !truth.Write(truths)) return false;
    text.clear();
    truths.clear();
  }
  return log.Close() && (truth_path.empty() || truth.Close());
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "writes click logs in Criteo's format from a known truth.\n"
      "  cairn-make-clicks --rows 400000 --seed 1 --out train.tsv\n"
      "  cairn-make-clicks --rows 40000 --seed 2 --out eval.tsv");
  const std::vector<char*> rest = absl::ParseCommandLine(argc, argv);
  const int64_t rows = absl::GetFlag(FLAGS_rows);
  if (rest.size() > 1 || absl::GetFlag(FLAGS_out).empty() || rows < 1) {
    std::fprintf(stderr,
                 "cairn-make-clicks: needs --out FILE and --rows of at least 1, and no other "
                 "arguments; see --help\n");
    return 2;
  }
  std::vector<float> labels, scores;
  if (!WriteLog(rows, &labels, &scores)) return 1;
  const auto clicks = std::count(labels.begin(), labels.end(), 1.0f);
  const double auc = cairn::Auc(labels, scores);
  // No AUC where every row, or none, was clicked.
  std::printf("{\"rows\":%lld,\"click_rate\":%.4f,\"bayes_auc\":%s}\n",
              static_cast<long long>(rows), static_cast<double>(clicks) / static_cast<double>(rows),
              auc == auc ? absl::StrFormat("%.4f", auc).c_str() : "null");
  return 0;
}
