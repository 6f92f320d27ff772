// A device simulated by loops on the CPU: the kernels of GPUs, and the rules of their memory and
// queues.
#pragma once

#include <cblas.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/guarded_memory.h"
#include "worker/ops/device_queue.h"
#include "worker/ops/device_rank.h"
#include "worker/ops/queue_of_loops_cuda.h"

namespace cairn::test {

// Runs the bodies of kernels_cuda.h, last element first: their order must not matter. Errors that
// would be wrong on a GPU become visible: memory holds NaN until it is written; copies in are done
// as late as possible, when an op or Finish waits for them, and their source must not have changed
// by then; memory that was copied out must not have changed when the queue finishes. Sums with
// other ranks are done when the queue finishes, and their inputs must not have changed by then.
class LoopQueue final : public QueueOfLoops<LoopQueue> {
 public:
  // `guarded`: only the device can use its memory; host code that touches the memory dies.
  explicit LoopQueue(bool guarded = false)
      : guard_(guarded ? std::make_unique<GuardedMemory>() : nullptr) {}
  ~LoopQueue() override {
    EXPECT_TRUE(sizes_.empty()) << sizes_.size() << " pieces of memory were not freed";
  }

  // Of the allocations from now on, `count` succeed.
  void LimitAllocations(int count) { allocations_left_ = count; }
  // Number of allocations that are not freed.
  int allocated() const { return static_cast<int>(sizes_.size()); }
  // Bytes copied out by all steps so far.
  size_t bytes_out() const { return bytes_out_; }

  absl::StatusOr<void*> AllocateDevice(size_t bytes) override {
    if (guard_ == nullptr) return Allocate(bytes);
    if (allocations_left_-- == 0) return NoMemory(bytes);
    void* const memory = guard_->Allocate(bytes);
    sizes_[memory] = bytes;
    return memory;
  }
  void FreeDevice(void* memory) override { Free(memory); }
  absl::StatusOr<void*> AllocateHost(size_t bytes) override { return Allocate(bytes); }
  void FreeHost(void* memory) override { Free(memory); }

  int CopyIn(const void* host, void* device, size_t bytes) override {
    const auto* const from = static_cast<const std::byte*>(host);
    in_.push_back({from, static_cast<std::byte*>(device), {from, from + bytes}});
    return static_cast<int>(begun_++);
  }
  void AwaitCopy(int copy) override {
    while (done_ <= static_cast<size_t>(copy)) CopyOne();
  }
  void CopyOut(const void* device, void* host, size_t bytes) override {
    if (!error_.ok()) return;
    const GuardedMemory::Access access(guard_.get());
    const auto* const from = static_cast<const std::byte*>(device);
    Out out;
    out.copies.push_back({from, static_cast<std::byte*>(host), {from, from + bytes}});
    out.of_sum = std::any_of(out_.begin(), out_.end(), [from](const Out& before) {
      return std::any_of(before.sums.begin(), before.sums.end(),
                         [from](const RankSum& sum) { return Bytes(sum.x) == from; });
    });
    out_.push_back(std::move(out));
  }
  void Reduce(DeviceRank& rank, absl::Span<const RankSum> sums) override {
    const GuardedMemory::Access access(guard_.get());
    Out out;
    out.rank = &rank;
    out.sums.assign(sums.begin(), sums.end());
    for (const RankSum& sum : sums) {
      const std::byte* const from = Bytes(sum.x);
      out.copies.push_back({from, nullptr, {from, from + sum.count * sizeof(float)}});
    }
    out_.push_back(std::move(out));
  }
  void CopyFrom(Device other, const void* from, void* to, size_t bytes) override {
    if (!error_.ok()) return;
    EXPECT_FALSE(other.is_cpu());
    const GuardedMemory::Access access(guard_.get());
    const GuardedMemory::Access others(GuardedMemory::Of(from));
    std::memcpy(to, from, bytes);
  }
  void Fail(const absl::Status& why) override { error_.Update(why); }
  absl::Status Finish() override {
    while (done_ < begun_) CopyOne();
    const GuardedMemory::Access access(guard_.get());
    for (const Out& out : out_) DoOut(out);
    out_.clear();
    done_ = begun_ = 0;
    return std::exchange(error_, absl::OkStatus());
  }

  // The interface that QueueOfLoops requires.
  void AwaitSums() {
    const GuardedMemory::Access access(guard_.get());
    for (const Out& out : out_) DoOut(out);
    out_.clear();
  }
  template <typename Body>
  void ForEach(uint64_t count, const Body& body) {
    if (!error_.ok()) return;
    const GuardedMemory::Access access(guard_.get());
    for (uint64_t i = count; i-- > 0;) {
      // Uses both widths of the index alternately.
      if (i % 2 == 0) {
        body(static_cast<uint32_t>(i));
      } else {
        body(i);
      }
    }
  }
  void Zero(float* x, size_t count) {
    if (!error_.ok()) return;
    const GuardedMemory::Access access(guard_.get());
    std::memset(x, 0, count * sizeof(float));
  }
  void Multiply(int64_t m, int64_t n, int64_t k, ColumnMajor a, ColumnMajor b, float* c,
                int64_t c_stride) {
    if (!error_.ok()) return;
    const GuardedMemory::Access access(guard_.get());
    const auto op = [](const ColumnMajor& x) { return x.transposed ? CblasTrans : CblasNoTrans; };
    const auto number = [](int64_t extent) { return static_cast<int>(extent); };
    cblas_sgemm(CblasColMajor, op(a), op(b), number(m), number(n), number(k), 1.0f, a.data,
                number(a.stride), b.data, number(b.stride), 0.0f, c, number(c_stride));
  }
  void MultiplyEach(const ProductBatch& batch, int64_t m, int64_t n, int64_t k, ColumnMajor a,
                    ColumnMajor b, float* c, int64_t c_stride) {
    for (int64_t i = 0; i < batch.count; ++i) {
      Multiply(m, n, k, {a.data + i * batch.a_step, a.transposed, a.stride},
               {b.data + i * batch.b_step, b.transposed, b.stride}, c + i * batch.c_step, c_stride);
    }
  }

 private:
  struct Copy {
    const std::byte* from;
    std::byte* to;
    std::vector<std::byte> bytes;  // contents when the copy was requested
  };
  // A copy out, or sums, with the contents of their memory at the request.
  struct Out {
    std::vector<Copy> copies;
    bool of_sum = false;  // copies the result of an earlier sum
    DeviceRank* rank = nullptr;
    std::vector<RankSum> sums;
  };

  static const std::byte* Bytes(const float* x) { return reinterpret_cast<const std::byte*>(x); }

  void DoOut(const Out& out) {
    for (const Copy& copy : out.copies) {
      if (out.of_sum) continue;
      EXPECT_EQ(std::memcmp(copy.from, copy.bytes.data(), copy.bytes.size()), 0)
          << "an op wrote what was being copied out, or added up";
    }
    if (out.rank != nullptr) return error_.Update(out.rank->Reduce(out.sums, nullptr));
    for (const Copy& copy : out.copies) {
      std::memcpy(copy.to, copy.from, copy.bytes.size());
      bytes_out_ += copy.bytes.size();
    }
  }

  void CopyOne() {
    const GuardedMemory::Access access(guard_.get());
    const Copy& copy = in_.front();
    EXPECT_EQ(std::memcmp(copy.from, copy.bytes.data(), copy.bytes.size()), 0)
        << "the host wrote what was being copied";
    std::memcpy(copy.to, copy.from, copy.bytes.size());
    in_.pop_front();
    ++done_;
  }

  static absl::Status NoMemory(size_t bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(bytes, " bytes are too many for this test"));
  }
  absl::StatusOr<void*> Allocate(size_t bytes) {
    if (allocations_left_-- == 0) return NoMemory(bytes);
    constexpr size_t kAlignment = 256;
    const size_t floats = (bytes + kAlignment - 1) / kAlignment * kAlignment / sizeof(float);
    auto* const memory =
        static_cast<float*>(std::aligned_alloc(kAlignment, floats * sizeof(float)));
    std::fill_n(memory, floats, std::numeric_limits<float>::quiet_NaN());
    sizes_[memory] = bytes;
    return memory;
  }
  void Free(void* memory) {
    if (memory == nullptr) return;
    EXPECT_EQ(sizes_.erase(memory), 1u) << "freed twice, or not from here";
    if (GuardedMemory::Of(memory) == nullptr) std::free(memory);
  }

  const std::unique_ptr<GuardedMemory> guard_;
  std::deque<Copy> in_;
  size_t begun_ = 0, done_ = 0;
  std::vector<Out> out_;
  size_t bytes_out_ = 0;
  std::map<void*, size_t> sizes_;
  int allocations_left_ = -1;  // < 0: no limit
  absl::Status error_;
};

}  // namespace cairn::test
