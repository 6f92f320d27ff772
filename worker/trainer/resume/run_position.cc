#include "worker/trainer/resume/run_position.h"

#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/errors.h"

namespace cairn {
namespace {

// First word of the text; another format gets another word.
constexpr absl::string_view kFormat = "cairn-run-1";
constexpr absl::string_view kFormatWithStart = "cairn-run-2";
constexpr size_t kWords = 9;  // and the start
// Third word: whether the run has finished, and how.
constexpr int kRuns = 0, kAtEnd = 1, kAtMaxSteps = 2;

}  // namespace

void RunPosition::EncodeTo(std::string* out) const {
  out->clear();
  absl::StrAppend(out, start == 0 ? kFormat : kFormatWithStart, " ", run, " ",
                  !finished      ? kRuns
                  : at_max_steps ? kAtMaxSteps
                                 : kAtEnd,
                  " ");
  absl::StrAppend(out, first_epoch, " ", epoch, " ", row, " ");
  absl::StrAppend(out, run_steps, " ", total_steps, " ", data_digest);
  if (start != 0) absl::StrAppend(out, " ", start);
}

absl::StatusOr<RunPosition> RunPosition::Decode(absl::string_view text) {
  const std::vector<absl::string_view> words = absl::StrSplit(text, ' ');
  RunPosition position;
  int32_t finished = 0;
  const bool has_start = words.size() == kWords + 1 && words[0] == kFormatWithStart;
  const bool good =
      (has_start || (words.size() == kWords && words[0] == kFormat)) &&
      absl::SimpleAtoi(words[1], &position.run) && absl::SimpleAtoi(words[2], &finished) &&
      absl::SimpleAtoi(words[3], &position.first_epoch) &&
      absl::SimpleAtoi(words[4], &position.epoch) && absl::SimpleAtoi(words[5], &position.row) &&
      absl::SimpleAtoi(words[6], &position.run_steps) &&
      absl::SimpleAtoi(words[7], &position.total_steps) &&
      absl::SimpleAtoi(words[8], &position.data_digest) && position.run > 0 &&
      position.first_epoch >= 0 && position.epoch >= position.first_epoch && position.row >= 0 &&
      position.run_steps >= 0 && position.total_steps >= position.run_steps &&
      (!has_start || (absl::SimpleAtoi(words[kWords], &position.start) && position.start > 0));
  if (!good) {
    return DataLoss(
        "the servers hold the resume position '", absl::CHexEscape(text.substr(0, 80)),
        "', which this program did not write; another program trains under this job's name: "
        "choose another name, or start over with --fresh");
  }
  position.finished = finished != kRuns;
  position.at_max_steps = finished == kAtMaxSteps;
  return position;
}

}  // namespace cairn
