#include "worker/input/dataset/parallel_map.h"

#include <utility>

#include "common/catch_exceptions.h"

namespace cairn::steps {
namespace {

// Elements in flight for each thread: while the first one is slow, the other threads continue.
constexpr size_t kAheadPerCall = 2;

}  // namespace

ParallelMapIterator::ParallelMapIterator(std::unique_ptr<DatasetIterator> input,
                                         std::shared_ptr<const MapFunction> function, int32_t calls)
    : input_(std::move(input)),
      function_(std::move(function)),
      calls_(static_cast<size_t>(calls)) {}

ParallelMapIterator::~ParallelMapIterator() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
    room_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

absl::StatusOr<bool> ParallelMapIterator::Next(Element* element) {
  while (threads_.size() < calls_) threads_.emplace_back([this] { Run(); });
  absl::MutexLock lock(&mutex_);
  // This wait ends with the threads, which wait only for the input, the function and space here.
  while (slots_.empty() ? !input_ended_ : !slots_.front().done) done_.Wait(&mutex_);
  if (slots_.empty()) return false;
  absl::Status status = std::move(slots_.front().status);
  *element = std::move(slots_.front().element);
  slots_.pop_front();
  room_.Signal();
  if (!status.ok()) return status;
  return true;
}

ParallelMapIterator::Slot* ParallelMapIterator::ReadNext() {
  absl::MutexLock input_lock(&input_mutex_);
  {
    absl::MutexLock lock(&mutex_);
    while (!stop_ && !input_ended_ && slots_.size() >= kAheadPerCall * calls_) {
      room_.Wait(&mutex_);
    }
    if (stop_ || input_ended_) return nullptr;
  }
  Slot read;
  absl::StatusOr<bool> more =
      CatchExceptions("a function of the dataset", [&] { return input_->Next(&read.element); });
  const bool at_end = more.ok() && !*more;
  read.status = std::move(more).status();
  absl::MutexLock lock(&mutex_);
  if (at_end) {
    input_ended_ = true;
    done_.Signal();
    return nullptr;
  }
  slots_.push_back(std::move(read));
  return &slots_.back();
}

void ParallelMapIterator::Run() {
  while (Slot* const slot = ReadNext()) {
    // Next does not touch a slot before it is done.
    Element element;
    absl::Status status;
    {
      absl::MutexLock lock(&mutex_);
      status = std::move(slot->status);
      element = std::move(slot->element);
    }
    if (status.ok()) {
      absl::StatusOr<Element> mapped =
          CatchExceptions("the function of Map", [&] { return (*function_)(std::move(element)); });
      if (mapped.ok()) {
        element = *std::move(mapped);
      } else {
        status = std::move(mapped).status();
      }
    }
    absl::MutexLock lock(&mutex_);
    slot->status = std::move(status);
    slot->element = std::move(element);
    slot->done = true;
    done_.Signal();
  }
}

}  // namespace cairn::steps
