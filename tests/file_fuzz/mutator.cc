#include "tests/file_fuzz/mutator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

namespace cairn::test {
namespace {

constexpr const char* kExtremeTexts[] = {"",
                                         "0",
                                         "-0",
                                         "1",
                                         "-1",
                                         "+1",
                                         "00",
                                         "1e400",
                                         "-1e400",
                                         "1e-400",
                                         "nan",
                                         "inf",
                                         "-inf",
                                         ".",
                                         "-",
                                         "127",
                                         "128",
                                         "255",
                                         "256",
                                         "32768",
                                         "65535",
                                         "65536",
                                         "2147483647",
                                         "2147483648",
                                         "-2147483648",
                                         "4294967295",
                                         "4294967296",
                                         "9223372036854775807",
                                         "9223372036854775808",
                                         "-9223372036854775808",
                                         "-9223372036854775809",
                                         "18446744073709551615",
                                         "18446744073709551616",
                                         "340282346638528859811704183484516925440",
                                         "1e308",
                                         "0x10",
                                         "1_000",
                                         "1.5",
                                         "1,5",
                                         "true",
                                         "false",
                                         "null",
                                         "~",
                                         "yes",
                                         "\"\"",
                                         "''",
                                         "{}",
                                         "[]",
                                         "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
                                         "{a: {a: {a: {a: {a: {a: {a: {a: {a: ",
                                         "\n",
                                         "\r\n",
                                         "\t",
                                         " ",
                                         "\\",
                                         "\"",
                                         "'",
                                         ":",
                                         "#",
                                         ",",
                                         "=",
                                         "/",
                                         "../../../etc/passwd",
                                         "\xff\xfe",
                                         "\xef\xbb\xbf",
                                         "\xc3\x28",
                                         "\xed\xa0\x80",
                                         "\xf4\x90\x80\x80",
                                         "\x1b[31m",
                                         "\xe2\x80\xae",
                                         "ps:0",
                                         "%s%n",
                                         "$(true)",
                                         "s3://bucket/x",
                                         "file:///etc/passwd"};

std::vector<std::string> AllExtremeTexts() {
  std::vector<std::string> texts(std::begin(kExtremeTexts), std::end(kExtremeTexts));
  for (const std::string& made :
       {std::string(1, '\0'), std::string(300, 'a'), std::string(5000, '9')}) {
    texts.push_back(made);
  }
  return texts;
}

struct Piece {
  size_t at = 0;
  size_t size = 0;
};

Piece AnyPiece(Dice& dice, const std::string& input) {
  if (input.empty()) return {};
  const size_t at = dice.Below(input.size());
  const size_t most = dice.OneIn(4) ? input.size() - at : std::min<size_t>(input.size() - at, 16);
  return {at, 1 + dice.Below(most)};
}

// A whole line including its end, for line-based formats.
Piece AnyLine(Dice& dice, const std::string& input) {
  if (input.empty()) return {};
  const size_t inside = dice.Below(input.size());
  const size_t before = inside == 0 ? std::string::npos : input.rfind('\n', inside - 1);
  const size_t begin = before == std::string::npos ? 0 : before + 1;
  const size_t end = input.find('\n', begin);
  return {begin, (end == std::string::npos ? input.size() : end + 1) - begin};
}

void StoreExtreme(Dice& dice, std::string* input) {
  const size_t widths[] = {1, 2, 4, 8};
  const size_t width = std::min(widths[dice.Below(4)], input->size());
  if (width == 0) return;
  const int64_t number = ExtremeInteger(dice);
  char bytes[8];
  std::memcpy(bytes, &number, sizeof bytes);
  if (dice.OneIn(2)) std::reverse(bytes, bytes + width);
  std::memcpy(input->data() + dice.Below(input->size() - width + 1), bytes, width);
}

void Insert(Dice& dice, const std::string& text, std::string* input) {
  input->insert(dice.Below(input->size() + 1), text);
}

void Replace(Dice& dice, const std::string& text, std::string* input) {
  const Piece piece = AnyPiece(dice, *input);
  input->replace(piece.at, piece.size, text);
}

void ChangeOnce(Dice& dice, absl::Span<const std::string> seeds,
                const std::vector<std::string>& words, std::string* input) {
  const Piece piece = dice.OneIn(2) ? AnyPiece(dice, *input) : AnyLine(dice, *input);
  switch (dice.Below(10)) {
    case 0:
      if (!input->empty())
        (*input)[dice.Below(input->size())] ^= static_cast<char>(1 << dice.Below(8));
      return;
    case 1:
      if (!input->empty()) (*input)[dice.Below(input->size())] = static_cast<char>(dice.Next());
      return;
    case 2: return StoreExtreme(dice, input);
    case 3: input->erase(piece.at, piece.size); return;
    case 4: {
      const std::string copy = input->substr(piece.at, piece.size);
      for (size_t i = 0, times = 1 + dice.Below(dice.OneIn(8) ? 200 : 3); i < times; ++i) {
        input->insert(piece.at, copy);
      }
      return;
    }
    case 5: {
      const std::string moved = input->substr(piece.at, piece.size);
      input->erase(piece.at, piece.size);
      return Insert(dice, moved, input);
    }
    case 6: {
      const std::string& other = seeds[dice.Below(seeds.size())];
      const Piece taken = AnyPiece(dice, other);
      return Insert(dice, other.substr(taken.at, taken.size), input);
    }
    case 7: return Insert(dice, dice.Of(ExtremeTexts()), input);
    case 8:
      if (!words.empty()) Insert(dice, dice.Of(words), input);
      return;
    default:
      Replace(dice, words.empty() || dice.OneIn(3) ? dice.Of(ExtremeTexts()) : dice.Of(words),
              input);
  }
}

}  // namespace

const std::vector<std::string>& ExtremeTexts() {
  static const auto& texts = *new std::vector<std::string>(AllExtremeTexts());
  return texts;
}

int64_t ExtremeInteger(Dice& dice) {
  const int64_t limits[] = {0,
                            1,
                            2,
                            7,
                            8,
                            127,
                            255,
                            32767,
                            65535,
                            int64_t{1} << 31,
                            int64_t{1} << 32,
                            int64_t{1} << 62,
                            std::numeric_limits<int64_t>::max()};
  const int64_t limit = limits[dice.Below(std::size(limits))];
  switch (dice.Below(5)) {
    case 0: return -limit;
    case 1: return limit - 1;
    case 2: return -limit - 1;
    case 3: return static_cast<int64_t>(dice.Next());
    default: return limit;
  }
}

double ExtremeNumber(Dice& dice) {
  const double limits[] = {0,
                           -0.0,
                           0.5,
                           1,
                           -1,
                           1e-45,
                           1e-320,
                           3.4e38,
                           3.5e38,
                           -3.5e38,
                           1e308,
                           std::nan(""),
                           std::numeric_limits<double>::infinity()};
  return dice.OneIn(3) ? static_cast<double>(ExtremeInteger(dice))
                       : limits[dice.Below(std::size(limits))];
}

void Mutate(Dice& dice, absl::Span<const std::string> seeds, const std::vector<std::string>& words,
            size_t max_bytes, std::string* input) {
  for (size_t i = 0, times = 1 + dice.Below(8); i < times; ++i) {
    ChangeOnce(dice, seeds, words, input);
    if (input->size() > max_bytes) input->resize(max_bytes);
  }
}

}  // namespace cairn::test
