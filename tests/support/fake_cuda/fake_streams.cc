#include "tests/support/fake_cuda/fake_streams.h"

#include <map>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/fake_cuda/fake_capture.h"
#include "tests/support/fake_cuda/fake_gpus.h"
#include "tests/support/fake_cuda/fake_registry.h"

namespace cairn::test::fake {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<cudaStream_t, std::shared_ptr<CUstream_st>> streams;
};
Registry& registry() {
  static Registry* const registry = new Registry;
  return *registry;
}

}  // namespace

cudaStream_t AddStream(int device) {
  std::shared_ptr<CUstream_st> stream = CUstream_st::Start(device);
  const std::lock_guard lock(registry().mutex);
  return registry().streams.emplace(stream.get(), stream).first->first;
}

bool RemoveStream(cudaStream_t stream) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().streams.find(stream);
  if (found == registry().streams.end()) return false;
  found->second->Stop();
  registry().streams.erase(found);
  return true;
}

void AwaitIdle(int device) {
  std::vector<std::shared_ptr<CUstream_st>> streams;
  {
    const std::lock_guard lock(registry().mutex);
    for (const auto& [handle, stream] : registry().streams) {
      if (device < 0 || stream->device() == device) streams.push_back(stream);
    }
  }
  for (const std::shared_ptr<CUstream_st>& stream : streams) {
    while (!stream->IsIdle()) Pause(10);
  }
}

void Enqueue(cudaStream_t stream, std::function<void()> work) {
  if (stream->capture != nullptr) return stream->capture->Add(stream, std::move(work));
  stream->Push(std::move(work));
}
int& Captures() {
  thread_local int captures = 0;
  return captures;
}
int DeviceOf(cudaStream_t stream) { return stream->device(); }

}  // namespace cairn::test::fake

std::shared_ptr<CUstream_st> CUstream_st::Start(int device) {
  auto stream = std::make_shared<CUstream_st>(device);
  stream->head_ = stream->tail_ = new Node;
  ::sem_init(&stream->ready_, 0, 0);
  std::thread([stream] { stream->Run(); }).detach();
  return stream;
}

CUstream_st::~CUstream_st() {
  delete head_;
  ::sem_destroy(&ready_);
}

void CUevent_st::Recording::Await(uint64_t number) const {
  while (done.load(std::memory_order_relaxed) < number) cairn::test::fake::Pause(5);
  done.load(std::memory_order_acquire);
}

void CUstream_st::Push(std::function<void()> work) {
  auto* const node = new Node;
  node->work = std::move(work);
  const std::lock_guard lock(producers_);
  pushed_.fetch_add(1, std::memory_order_relaxed);
  tail_->next.store(node, std::memory_order_release);
  tail_ = node;
  ::sem_post(&ready_);
}

bool CUstream_st::IsIdle() const {
  const uint64_t pushed = pushed_.load(std::memory_order_relaxed);
  return done_.load(std::memory_order_relaxed) == pushed &&
         done_.load(std::memory_order_acquire) == pushed;
}

void CUstream_st::Run() {
  const cairn::test::fake::DeviceAccess access;
  std::minstd_rand random(static_cast<unsigned>(reinterpret_cast<uintptr_t>(this) >> 4));
  for (;;) {
    while (::sem_wait(&ready_) != 0) {
    }
    Node* const next = head_->next.load(std::memory_order_acquire);
    delete std::exchange(head_, next);
    if (next->work == nullptr) return;
    const int longest = cairn::test::fake::settings().delay_us.load(std::memory_order_relaxed);
    if (longest > 0 && random() % 4 == 0) {
      cairn::test::fake::Pause(static_cast<int>(random() % static_cast<unsigned>(longest)));
    }
    next->work();
    next->work = nullptr;
    done_.fetch_add(1, std::memory_order_release);
  }
}
