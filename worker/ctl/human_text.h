// Numbers and tables for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cairn {

// "0 B", "1.5 KiB", "4 GiB".
std::string BytesText(int64_t bytes);
// "0.3s", "12s", "3m5s", "2h10m", "5d3h".
std::string SecondsText(double seconds);

// Columns as wide as their widest cell, two spaces between them. Thread safety: none.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> titles) { Add(std::move(titles)); }
  void Add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.size() == 1; }
  // The lines with line ends, without trailing spaces, each indented by `indent` spaces.
  std::string Text(size_t indent = 2) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace cairn
