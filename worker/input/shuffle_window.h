// Draws the next item from a window of items, as tf.data's shuffle does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
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

  // Begins a round, with the items that TakeAhead has taken. Its order depends only on `seed` and
  // the source.
  void Restart(uint64_t seed) {
    std::move(items_.begin(), items_.end(), std::back_inserter(next_));
    items_ = std::exchange(next_, {});
    size_ = std::exchange(next_size_, 0);
    source_ended_ = std::exchange(next_ended_, false);
    drawn_ = capacity_;
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
  // Whether Next takes no more items in this round.
  bool source_ended() const { return source_ended_; }
  // When the source has ended: takes an item of the next round, into memory that this round has
  // freed. Does nothing if the window is full or the next round's source has ended.
  template <typename Take>
  absl::Status TakeAhead(const Take& take) {
    if (next_ended_ || next_size_ == capacity_) return absl::OkStatus();
    if (next_.size() == next_size_) {
      next_.emplace_back();
      if (items_.size() > size_) {
        next_.back() = std::move(items_.back());
        items_.pop_back();
      }
    }
    ASSIGN_OR_RETURN(const bool more, take(&next_.back()));
    next_ended_ = !more;
    if (more) ++next_size_;
    return absl::OkStatus();
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
  std::vector<T> next_;  // next_[0 … next_size_) are the next round's
  size_t next_size_ = 0;
  bool next_ended_ = false;  // the next round's source
  Random random_;
};

}  // namespace cairn
