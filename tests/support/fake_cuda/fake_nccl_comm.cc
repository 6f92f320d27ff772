#include "tests/support/fake_cuda/fake_nccl_comm.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "tests/support/fake_cuda/fake_gpus.h"

namespace cairn::test::fake {
namespace {

// What a network adds to a send.
constexpr int kNetworkDelayUs = 5000;

}  // namespace

NcclRank::NcclRank(int rank, int ranks, int device, std::string board_name)
    : rank_(rank), ranks_(ranks), device_(device), board_name_(std::move(board_name)) {
  thread_ = std::thread([this] { Work(); });
}

NcclRank::~NcclRank() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  // The last owner may be a job of this very thread's stream, never the thread itself.
  thread_.join();
  if (board_ != nullptr) Board::Unmap(board_);
  for (const int process : processes_) ::close(process);
}

void NcclRank::Work() {
  for (;;) {
    std::function<void()> job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    if (!aborted_) job();
  }
}

void NcclRank::Start(std::function<ncclResult_t()> job) {
  state_ = ncclInProgress;
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back([this, job = std::move(job)] {
      Pause(settings().delay_us);
      state_ = job();
    });
  }
  changed_.notify_all();
}

void NcclRank::Connect() {
  Start([this] { return Join(); });
}

ncclResult_t NcclRank::Join() {
  board_ = Board::Map(board_name_);
  if (board_ == nullptr) return ncclSystemError;
  board_->ranks[static_cast<size_t>(rank_)].process = ::getpid();
  board_->ranks[static_cast<size_t>(rank_)].device_and_one = device_ + 1;
  for (int r = 0; r < ranks_; ++r) {
    while (board_->ranks[static_cast<size_t>(r)].device_and_one == 0) {
      if (aborted_) return ncclSystemError;
      Pause(50);
    }
  }
  Board::Forget(board_name_);
  for (int r = 0; r < ranks_; ++r) {
    const int other = board_->ranks[static_cast<size_t>(r)].device_and_one - 1;
    if (r != rank_ && other == device_) return ncclInvalidUsage;  // two ranks on one device
    const int process = board_->ranks[static_cast<size_t>(r)].process;
    processes_.push_back(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  }
  return ncclSuccess;
}

void NcclRank::Queue(std::vector<NcclOp> ops, cudaStream_t stream) {
  Start([this, ops = std::move(ops), stream] {
    std::shared_ptr<NcclRank> self = weak_from_this().lock();
    if (self == nullptr) return ncclSuccess;  // aborted in the meantime
    CountNcclKernel();
    auto work = [self = std::move(self), ops = ops]() mutable { self->Run(ops); };
    Enqueue(stream, std::move(work));
    return ncclSuccess;
  });
}

void NcclRank::Finalize() {
  // Jobs are done in order, so all sends before it are delivered.
  Start([] { return ncclSuccess; });
}

void NcclRank::Abort() { aborted_ = true; }

void NcclRank::Post(const Transfer& send) {
  auto bytes = std::make_shared<std::vector<char>>(send.from, send.from + send.bytes);
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back([this, bytes, peer = send.peer] {
      Pause(kNetworkDelayUs);
      Transfer left{.peer = peer, .from = bytes->data(), .bytes = bytes->size()};
      while (left.bytes > 0 && !aborted_) {
        if (!Move(&left)) Pause(20);
      }
    });
  }
  changed_.notify_all();
}

bool NcclRank::Move(Transfer* transfer) {
  const auto peer = static_cast<size_t>(transfer->peer), own = static_cast<size_t>(rank_);
  size_t moved = 0;
  if (transfer->from != nullptr) {
    moved = board_->boxes[own][peer].Write(transfer->from, transfer->bytes);
    transfer->from += moved;
  } else {
    moved = board_->boxes[peer][own].Read(transfer->to, transfer->bytes);
    transfer->to += moved;
  }
  transfer->bytes -= moved;
  return moved > 0;
}

bool NcclRank::IsGone(int rank) const {
  pollfd process = {.fd = processes_[static_cast<size_t>(rank)], .events = POLLIN, .revents = 0};
  return ::poll(&process, 1, 0) != 0;
}

// The kernel: moves bytes until all transfers are done, those with one peer in their order.
void NcclRank::Run(std::vector<NcclOp>& ops) {
  std::vector<std::deque<Transfer>> lanes(2 * static_cast<size_t>(ranks_));
  for (NcclOp& op : ops) {
    for (const Transfer& transfer : op.transfers) {
      if (transfer.bytes == 0) continue;
      if (transfer.from != nullptr && settings().network && transfer.peer != rank_) {
        Post(transfer);
        continue;
      }
      const size_t lane = 2 * static_cast<size_t>(transfer.peer) + (transfer.from ? 0 : 1);
      lanes[lane].push_back(transfer);
    }
  }
  for (bool all = false; !all;) {
    bool moved = false;
    all = true;
    for (std::deque<Transfer>& lane : lanes) {
      if (lane.empty()) continue;
      // Sockets notice the end of a process; the kernel still waits for its bytes.
      if (settings().network && IsGone(lane.front().peer)) state_ = ncclRemoteError;
      moved = Move(&lane.front()) || moved;
      if (lane.front().bytes == 0) lane.pop_front();
      all = all && lane.empty();
    }
    if (aborted_) return;
    if (!moved && !all) Pause(10);
  }
  for (NcclOp& op : ops) {
    if (op.finish != nullptr) op.finish();
  }
}

}  // namespace cairn::test::fake
