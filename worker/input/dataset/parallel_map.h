// Map in several threads, in the order of the input.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "worker/input/dataset/dataset.h"

namespace cairn::steps {

// The threads start with the first Next and are joined by the destructor, which waits for the
// calls of the function and of the input that are under way.
class ParallelMapIterator : public DatasetIterator {
 public:
  ParallelMapIterator(std::unique_ptr<DatasetIterator> input,
                      std::shared_ptr<const MapFunction> function, int32_t calls);
  ~ParallelMapIterator() override;
  absl::StatusOr<bool> Next(Element* element) override;

 private:
  struct Slot {
    absl::Status status;
    Element element;
    bool done = false;
  };

  void Run();
  // The next element of the input in a slot of its own at the end of slots_; null: stop.
  Slot* ReadNext();

  const std::unique_ptr<DatasetIterator> input_ ABSL_GUARDED_BY(input_mutex_);
  const std::shared_ptr<const MapFunction> function_;
  const size_t calls_;
  // Held while the input is read and its slot made, so that slots are in the input's order.
  absl::Mutex input_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);
  absl::Mutex mutex_;
  absl::CondVar room_;  // slots_ got shorter, or stop_
  absl::CondVar done_;  // the first slot may be done
  // One for every element between the input and Next; references stay valid while both ends move.
  std::deque<Slot> slots_ ABSL_GUARDED_BY(mutex_);
  bool input_ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace cairn::steps
