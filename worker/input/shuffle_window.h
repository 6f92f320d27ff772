// Draws the next item from a window of items, as tf.data's shuffle does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/status.h"
#include "worker/input/random.h"

namespace cairn {

// Items keep their memory from one use to the next. Thread safety: none.
template <typename T>
class ShuffleWindow {
 public:
  // Holds `items` items (> 0) once full.
  ShuffleWindow(size_t items, uint64_t seed) : capacity_(items), random_(seed) {}

  // Empties the window. The order from then on depends only on `seed` and the source.
  void Restart(uint64_t seed) {
    size_ = drawn_ = 0;
    source_ended_ = false;
    random_ = Random(seed);
  }
  // One of the held items, which the next call replaces by the source's next item; null at the end.
  // `take` fills an item from the source: absl::StatusOr<bool>(T*), false at its end. Its error is
  // this call's; nothing is lost, and the next call asks again.
  template <typename Take>
  absl::StatusOr<T*> Next(const Take& take) {
    if (drawn_ < size_) {
      RETURN_IF_ERROR(Fill(drawn_, take));
      if (source_ended_) std::swap(items_[drawn_], items_[--size_]);
    }
    for (drawn_ = capacity_; size_ < capacity_ && !source_ended_;) {
      if (items_.size() == size_) items_.emplace_back();
      RETURN_IF_ERROR(Fill(size_, take));
      if (!source_ended_) ++size_;
    }
    if (size_ == 0) return nullptr;
    drawn_ = static_cast<size_t>(random_.Below(size_));
    return &items_[drawn_];
  }

 private:
  template <typename Take>
  absl::Status Fill(size_t item, const Take& take) {
    if (source_ended_) return absl::OkStatus();
    ASSIGN_OR_RETURN(const bool more, take(&items_[item]));
    source_ended_ = !more;
    return absl::OkStatus();
  }

  const size_t capacity_;
  std::vector<T> items_;
  size_t size_ = 0;   // items_[0 … size_) are held
  size_t drawn_ = 0;  // the item that Next returned last; size_ or above: none
  bool source_ended_ = false;
  Random random_;
};

}  // namespace cairn
