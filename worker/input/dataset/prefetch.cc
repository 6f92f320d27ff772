// Prefetch: a thread reads ahead.
#include <deque>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/catch_exceptions.h"
#include "common/status.h"
#include "worker/input/dataset/steps.h"

namespace cairn::steps {
namespace {

// The thread starts with the first Next. The destructor joins it; it waits for a running call of
// the input.
class PrefetchIterator : public DatasetIterator {
 public:
  PrefetchIterator(std::unique_ptr<DatasetIterator> input, int64_t buffer_size)
      : input_(std::move(input)), buffer_size_(static_cast<size_t>(buffer_size)) {}

  ~PrefetchIterator() override {
    {
      absl::MutexLock lock(&mutex_);
      stop_ = true;
      room_.Signal();
    }
    if (thread_.joinable()) thread_.join();
  }

  absl::StatusOr<bool> Next(Element* element) override {
    if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
    absl::MutexLock lock(&mutex_);
    // This wait ends with the thread, which waits only for its input and space here.
    while (ready_.empty() && !ended_) data_.Wait(&mutex_);
    if (ready_.empty()) return false;
    absl::Status status = std::move(ready_.front().status);
    *element = std::move(ready_.front().element);
    ready_.pop_front();
    room_.Signal();
    if (!status.ok()) return status;
    return true;
  }

 private:
  struct Ahead {
    absl::Status status;
    Element element;
  };

  void Run() {
    for (;;) {
      Ahead next;
      absl::StatusOr<bool> more =
          CatchExceptions("a function of the dataset", [&] { return input_->Next(&next.element); });
      const bool at_end = more.ok() && !*more;
      next.status = std::move(more).status();
      absl::MutexLock lock(&mutex_);
      if (at_end) {
        ended_ = true;
        data_.Signal();
        return;
      }
      while (!stop_ && ready_.size() >= buffer_size_) room_.Wait(&mutex_);
      if (stop_) return;
      ready_.push_back(std::move(next));
      data_.Signal();
    }
  }

  const std::unique_ptr<DatasetIterator> input_;  // used only by the thread
  const size_t buffer_size_;
  absl::Mutex mutex_;
  absl::CondVar room_;
  absl::CondVar data_;
  std::deque<Ahead> ready_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

class PrefetchNode : public DatasetNode {
 public:
  PrefetchNode(NodePtr input, int64_t buffer_size)
      : DatasetNode({std::move(input)}), buffer_size_(buffer_size) {}
  std::string name() const override { return "Prefetch"; }
  NodePtr WithInputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<PrefetchNode>(inputs.front(), buffer_size_);
  }
  absl::StatusOr<std::unique_ptr<DatasetIterator>> MakeIterator(
      const IterationContext& context) const override {
    ASSIGN_OR_RETURN(auto input, this->input().MakeIterator(context));
    return std::make_unique<PrefetchIterator>(std::move(input), buffer_size_);
  }

 private:
  const int64_t buffer_size_;
};

}  // namespace

NodePtr Prefetch(NodePtr input, int64_t buffer_size) {
  return std::make_shared<PrefetchNode>(std::move(input), buffer_size);
}

}  // namespace cairn::steps
