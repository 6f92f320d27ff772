#include "worker/cluster/slurm_text.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/errors.h"
#include "common/status.h"

namespace cairn {
namespace {

constexpr size_t kMaxHosts = 65536;  // Slurm itself allows no more nodes

absl::Status BadHostlist(absl::string_view list, absl::string_view why) {
  return InvalidArgument("Invalid hostlist format \"", list.substr(0, 200), "\": ", why,
                         "; expected the form of n[1-3,7],m5");
}

absl::Status BadTasks(absl::string_view list, absl::string_view why) {
  return InvalidArgument("Invalid tasks-per-node list format \"", list.substr(0, 200), "\": ", why,
                         "; expected the form of 3(x2),1");
}

// Accepts only digits; SimpleAtoi also accepts blanks and signs.
bool ReadDigits(absl::string_view text, int32_t* number) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c));
  }) && absl::SimpleAtoi(text, number);
}

// The parts between commas outside brackets. The list may end with one comma.
absl::StatusOr<std::vector<absl::string_view>> SplitHosts(absl::string_view list) {
  std::vector<absl::string_view> parts;
  bool in_brackets = false;
  size_t start = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i] == '[' || list[i] == ']') {
      if (in_brackets == (list[i] == '[')) {
        return BadHostlist(list, absl::StrCat("a stray '", list.substr(i, 1), "'"));
      }
      in_brackets = list[i] == '[';
    } else if (list[i] == ',' && !in_brackets) {
      if (i == start) return BadHostlist(list, "nothing before a ','");
      parts.push_back(list.substr(start, i - start));
      start = i + 1;
    }
  }
  if (in_brackets) return BadHostlist(list, "']' is missing");
  if (start < list.size()) parts.push_back(list.substr(start));
  return parts;
}

// `range` is "3" or "08-11".
absl::Status AppendRange(absl::string_view list, absl::string_view prefix, absl::string_view range,
                         std::vector<std::string>* hosts) {
  const std::vector<absl::string_view> ends = absl::StrSplit(range, '-');
  int32_t first = 0;
  int32_t last = 0;
  if (ends.size() > 2 || !ReadDigits(absl::StripAsciiWhitespace(ends.front()), &first) ||
      !ReadDigits(absl::StripAsciiWhitespace(ends.back()), &last)) {
    return BadHostlist(list, absl::StrCat("'", range, "' is neither a number nor two"));
  }
  if (last < first) {
    return BadHostlist(list, absl::StrCat("'", range, "' ends before it begins and names no host"));
  }
  // The width of the text between the brackets, including blanks, as TensorFlow counts it.
  const size_t digits = ends.front().size();
  for (int64_t i = first; i <= last; ++i) {
    if (hosts->size() == kMaxHosts) {
      return BadHostlist(list, absl::StrCat("it names more than ", kMaxHosts, " hosts"));
    }
    const std::string number = absl::StrCat(i);
    const std::string zeros(number.size() < digits ? digits - number.size() : 0, '0');
    hosts->push_back(absl::StrCat(prefix, zeros, number));
  }
  return absl::OkStatus();
}

absl::Status AppendPart(absl::string_view list, absl::string_view part,
                        std::vector<std::string>* hosts) {
  const size_t open = part.find('[');
  if (open == absl::string_view::npos) {
    if (hosts->size() == kMaxHosts) {
      return BadHostlist(list, absl::StrCat("it names more than ", kMaxHosts, " hosts"));
    }
    hosts->emplace_back(part);
    return absl::OkStatus();
  }
  if (part.find(']') != part.size() - 1) {
    return BadHostlist(list, absl::StrCat("'", part, "' goes on after its bracket"));
  }
  const absl::string_view ranges = part.substr(open + 1, part.size() - open - 2);
  for (const absl::string_view range : absl::StrSplit(ranges, ',')) {
    RETURN_IF_ERROR(AppendRange(list, part.substr(0, open), range, hosts));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandHostlist(absl::string_view hostlist) {
  ASSIGN_OR_RETURN(const std::vector<absl::string_view> parts, SplitHosts(hostlist));
  std::vector<std::string> hosts;
  for (const absl::string_view part : parts) {
    RETURN_IF_ERROR(AppendPart(hostlist, part, &hosts));
  }
  return hosts;
}

absl::StatusOr<std::vector<int32_t>> ExpandTasksPerNode(absl::string_view tasks_per_node) {
  std::vector<int32_t> tasks;
  for (const absl::string_view part : absl::StrSplit(tasks_per_node, ',')) {
    absl::string_view count_text = part;
    absl::string_view repeat_text = "1";
    const size_t open = part.find("(x");
    if (open != absl::string_view::npos && absl::EndsWith(part, ")")) {
      count_text = part.substr(0, open);
      repeat_text = absl::StripSuffix(part.substr(open + 2), ")");
    }
    int32_t count = 0;
    int32_t repeat = 0;
    if (!ReadDigits(count_text, &count) || !ReadDigits(repeat_text, &repeat)) {
      return BadTasks(tasks_per_node, absl::StrCat("found '", part.substr(0, 60), "'"));
    }
    if (static_cast<size_t>(repeat) > kMaxHosts - tasks.size()) {
      return BadTasks(tasks_per_node, absl::StrCat("it has more than ", kMaxHosts, " hosts"));
    }
    tasks.insert(tasks.end(), repeat, count);
  }
  return tasks;
}

}  // namespace cairn
