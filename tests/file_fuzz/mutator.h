// Random inputs: mutations of seeds with words of the format; the same inputs for the same seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace cairn::test {

// SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators").
// Thread safety: none.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // In [0, end); 0 if `end` is 0.
  size_t Below(size_t end) { return end == 0 ? 0 : Next() % end; }
  bool OneIn(size_t n) { return Below(n) == 0; }
  template <class T>
  const T& Of(const std::vector<T>& all) {
    return all[Below(all.size())];
  }

 private:
  uint64_t state_;
};

// Numbers, texts and escapes at the limits of types, for every text parser.
const std::vector<std::string>& ExtremeTexts();
// A number at or next to a limit of its type; also used as bytes.
int64_t ExtremeInteger(Dice& dice);
double ExtremeNumber(Dice& dice);

// Changes `input` in one to eight places: flips bits, changes bytes, inserts extreme integers,
// removes, repeats or moves pieces, copies pieces from another seed, or inserts words of the
// format. At most `max_bytes` remain.
void Mutate(Dice& dice, absl::Span<const std::string> seeds, const std::vector<std::string>& words,
            size_t max_bytes, std::string* input);

}  // namespace cairn::test
