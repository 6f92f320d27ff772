// A rank of a fake NCCL communicator.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/fake_cuda/fake_nccl_board.h"
#include "tests/support/fake_cuda/include/nccl.h"

namespace cairn::test::fake {

// A part of a collective: bytes to or from one peer. The bytes of a send must not change before
// all transfers of the kernel are done.
struct Transfer {
  int peer = 0;
  const char* from = nullptr;  // of a send
  char* to = nullptr;          // of a receive
  size_t bytes = 0;
};

// A collective: its transfers, and what its rank does when all of them are done.
struct NcclOp {
  std::vector<Transfer> transfers;
  std::vector<std::shared_ptr<std::vector<char>>> memory;
  std::function<void()> finish;
};

// Connects and queues work in a thread of its own, as NCCL does for communicators that do not
// block. Thread safety: as NCCL's: one thread at a time, but for the streams.
class NcclRank : public std::enable_shared_from_this<NcclRank> {
 public:
  NcclRank(int rank, int ranks, int device, std::string board_name);
  ~NcclRank();
  NcclRank(const NcclRank&) = delete;
  NcclRank& operator=(const NcclRank&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  int device() const { return device_; }
  ncclResult_t state() const { return state_.load(); }

  // Each begins with state() == ncclInProgress.
  void Connect();
  void Queue(std::vector<NcclOp> ops, cudaStream_t stream);
  void Finalize();
  // Queued work ends by itself; sends that were not delivered are lost. The peers learn nothing.
  void Abort();

 private:
  void Start(std::function<ncclResult_t()> job);
  void Work();
  ncclResult_t Join();
  void Run(std::vector<NcclOp>& ops);
  // Hands a send to the thread, which delivers it some time later.
  void Post(const Transfer& send);
  bool Move(Transfer* transfer);
  // Whether the process of a rank has ended.
  bool IsGone(int rank) const;

  const int rank_, ranks_, device_;
  const std::string board_name_;
  Board* board_ = nullptr;
  std::vector<int> processes_;  // by rank: a file descriptor of its process
  std::atomic<ncclResult_t> state_{ncclInProgress};
  std::atomic<bool> aborted_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace cairn::test::fake
