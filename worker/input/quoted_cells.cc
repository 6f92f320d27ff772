#include "worker/input/quoted_cells.h"

namespace cairn {

void QuotedLine::Put(const char* from, char c) {
  text_.push_back(c);
  origins_.push_back(from);
}

bool QuotedLine::Read(absl::string_view line, char separator, LineError* error) {
  line_ = line;
  separator_ = separator;
  next_ = line.data();
  text_.clear();
  origins_.clear();
  error->at = nullptr;
  const char* const end = line.data() + line.size();
  for (;;) {
    const char* first = next_;
    while (first != end && *first == ' ') ++first;
    if (first != end && *first == '"') {
      next_ = first + 1;
      ReadQuoted(error);
    }
    for (; next_ != end && *next_ != separator; ++next_) Put(next_, *next_);
    if (next_ == end) break;
    Put(next_, *next_);
    ++next_;
  }
  Put(end, '\n');
  return error->at == nullptr;
}

// Reads from after the opening quote to the separator, or to the text found in its place.
void QuotedLine::ReadQuoted(LineError* error) {
  const auto fail = [error](const char* at, const char* what) {
    if (error->at != nullptr) return;
    error->at = at;
    error->what = what;
  };
  const char* const end = line_.data() + line_.size();
  const char* const quote = next_ - 1;
  const char* separator = nullptr;
  for (; next_ != end; ++next_) {
    if (*next_ == separator_) {
      if (separator == nullptr) separator = next_;
      Put(next_, ' ');
    } else if (*next_ != '"') {
      Put(next_, *next_);
    } else if (next_ + 1 != end && next_[1] == '"') {
      Put(++next_, '"');
    } else {
      if (separator != nullptr) {
        fail(separator, "a separator in quotes; a cell is a number or a token without one");
      }
      ++next_;
      while (next_ != end && *next_ == ' ') ++next_;
      if (next_ != end && *next_ != separator_) fail(next_, "text after a closing quote");
      return;
    }
  }
  fail(quote, "the quote is not closed in this line; a row is one line");
}

const char* QuotedLine::Origin(const char* at) const {
  return origins_[static_cast<size_t>(at - text_.data())];
}

}  // namespace cairn
