// The numbers that determine a generated call: drawn at random, or replayed from a tape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <utility>
#include <vector>

namespace cairn::fuzz {

using Random = std::mt19937_64;
using Tape = std::vector<uint32_t>;

// Called with every number taken, so that the numbers are known if a call ends the process.
void NoteTaken(uint32_t number);

// Records every number taken, so that a run can be repeated from its tape. A tape that ends early
// continues with zeros, and zero always stands for the simplest choice: a shorter tape, or one with
// smaller numbers, generates simpler calls. Thread safety: none.
class Choices {
 public:
  // Draws from `random`, which must outlive this object.
  explicit Choices(Random* random) : random_(random) {}
  // Replays `tape`.
  explicit Choices(Tape tape) : replayed_(std::move(tape)) {}

  // A number in [0, bound); 0 if `bound` is 0.
  uint32_t Below(size_t bound) {
    uint32_t number = 0;
    if (random_ != nullptr) {
      number = bound < 2 ? 0 : static_cast<uint32_t>((*random_)() % bound);
    } else if (next_ < replayed_.size()) {
      number = bound < 2 ? 0 : static_cast<uint32_t>(replayed_[next_] % bound);
    }
    ++next_;
    NoteTaken(number);
    return number;
  }
  // True with probability 1/n, n >= 2; false is the simpler choice.
  bool OneIn(uint32_t n) { return Below(n) == n - 1; }
  template <typename T>
  const T& Of(const std::vector<T>& values) {
    return values[Below(values.size())];
  }
  template <typename T>
  T Of(std::initializer_list<T> values) {
    return values.begin()[Below(values.size())];
  }
  // The index of one of `weights`, by weight; the simplest choice is the first one with a weight
  // above 0.
  size_t Weighted(const std::vector<uint32_t>& weights) {
    uint32_t sum = 0;
    for (const uint32_t weight : weights) sum += weight;
    uint32_t left = Below(sum);
    for (size_t i = 0; i < weights.size(); ++i) {
      if (left < weights[i]) return i;
      left -= weights[i];
    }
    return 0;
  }

 private:
  Random* const random_ = nullptr;
  const Tape replayed_;
  size_t next_ = 0;
};

}  // namespace cairn::fuzz
