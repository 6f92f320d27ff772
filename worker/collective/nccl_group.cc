#include "worker/collective/nccl_group.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/collective/collective_call.h"
#include "worker/collective/nccl_library.h"
#include "worker/ops/device_queue.h"

namespace cairn {
namespace {

// Pause between checks of a stream whose work is not done.
constexpr absl::Duration kPollPause = absl::Microseconds(20);
// Checks without a pause before that: a small collective takes about 20 us.
constexpr int kPollsWithoutPause = 200;
// NCCL reports nothing when a peer on the same machine dies. A rank that has waited for so long
// asks the others whether they still run, so often and with this limit.
constexpr absl::Duration kFirstRequest = absl::Seconds(1);
constexpr absl::Duration kRequestPause = absl::Milliseconds(500);
constexpr absl::Duration kRequestTimeout = absl::Milliseconds(200);
// Limit of telling the others, when the group ends, that this rank has sent all.
constexpr absl::Duration kFinalizeTimeout = absl::Seconds(5);

absl::Status Check(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();
  return absl::InternalError(absl::StrCat("CUDA: ", what, ": ", cudaGetErrorString(error)));
}

absl::Status Check(ncclResult_t result, absl::string_view what) {
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("NCCL: ", what, ": ", Nccl::Get().error_text(result)));
}

ncclDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return ncclFloat32;
    case DType::kFloat64: return ncclFloat64;
    case DType::kFloat16: return ncclFloat16;
    case DType::kBFloat16: return ncclBfloat16;
    case DType::kInt32: return ncclInt32;
    case DType::kInt64: return ncclInt64;
  }
  return ncclInt8;
}

ncclRedOp_t OpOf(ReduceOp op) { return op == ReduceOp::kMean ? ncclAvg : ncclSum; }

class NcclGroup final : public CollectiveGroup {
 public:
  NcclGroup(CollectiveGroup& bootstrap, const NcclOptions& options)
      : bootstrap_(bootstrap), device_(options.device), stream_(options.stream) {}
  ~NcclGroup() override;
  absl::Status Connect(Deadline deadline);

  int rank() const override { return bootstrap_.rank(); }
  int size() const override { return bootstrap_.size(); }
  const std::string& peer(int rank) const override { return bootstrap_.peer(rank); }

  absl::Status AllReduce(ReduceOp op, ConstBuffer in, MutableBuffer out,
                         Deadline deadline) override;
  absl::Status Broadcast(int root, MutableBuffer buffer, Deadline deadline) override;
  absl::Status AllGatherV(ConstBuffer in, PlaceGathered place, Deadline deadline) override;
  absl::Status ReduceScatter(ReduceOp op, ConstBuffer in, MutableBuffer out,
                             Deadline deadline) override;
  absl::Status Barrier(Deadline deadline) override;
  void Abort(const absl::Status& why) override { bootstrap_.Abort(why); }
  absl::Status usable() const override;

 private:
  // Compares the ranks' calls, lets `launch` put work on the stream, and waits for the work.
  // `prepare` decides whether launch() may run, the same way on every rank.
  template <typename Prepare, typename Launch>
  absl::Status Run(CollectiveCall call, ConstBuffer in, MutableBuffer* out, Deadline deadline,
                   Prepare prepare, Launch launch);
  template <typename Launch>
  absl::Status Run(CollectiveCall call, ConstBuffer in, MutableBuffer* out, Deadline deadline,
                   Launch launch) {
    return Run(
        call, in, out, deadline, [] { return absl::OkStatus(); }, launch);
  }
  // `own`, or an error if another rank has one.
  absl::Status AllOk(const absl::Status& own, absl::string_view what, Deadline deadline);
  absl::Status Compare(const CollectiveCall& call, Deadline deadline);
  // Calls poll(&done) until `done` is set, poll fails, a rank is at fault, or the deadline expires.
  template <typename Poll>
  absl::Status Await(Poll poll, Deadline deadline, absl::string_view what);
  absl::Status AwaitReady(Deadline deadline, absl::string_view what);
  absl::Status AwaitStream(Deadline deadline, absl::string_view what);
  absl::Status Break(const absl::Status& status);
  // Whether all that this rank has sent has left it.
  bool Finalize();

  CollectiveGroup& bootstrap_;
  const int device_;
  cudaStream_t stream_;
  bool owns_stream_ = false;
  ncclComm_t comm_ = nullptr;
  uint64_t number_ = 0;
  std::vector<CollectiveCall> calls_;
  absl::Status broken_;
};

// The work on the stream is done, or the communicator has been aborted. NCCL may still be sending
// to ranks of other machines, which an abort would cut off.
NcclGroup::~NcclGroup() {
  const KeepCurrentGpu keep;
  if (comm_ != nullptr) {
    if (usable().ok() && Finalize()) {
      Nccl::Get().destroy(comm_);
    } else {
      Nccl::Get().abort(comm_);
    }
  }
  if (owns_stream_) cudaStreamDestroy(stream_);
}

bool NcclGroup::Finalize() {
  const Deadline deadline = Deadline::In(kFinalizeTimeout);
  return Check(Nccl::Get().finalize(comm_), "finalize").ok() &&
         AwaitReady(deadline, "finalizing").ok();
}

absl::Status NcclGroup::Connect(Deadline deadline) {
  const KeepCurrentGpu keep;
  ncclUniqueId id = {};
  absl::Status own = Nccl::Get().library.status();
  if (own.ok()) own = Check(cudaSetDevice(device_), absl::StrCat("gpu:", device_));
  if (own.ok() && stream_ == nullptr) {
    own = Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    owns_stream_ = own.ok();
  }
  if (own.ok() && rank() == 0) own = Check(Nccl::Get().unique_id(&id), "unique id");
  // Checked before any rank waits in NCCL for a missing one.
  RETURN_IF_ERROR(AllOk(own, "cannot use their GPU", deadline));
  static_assert(sizeof(id) % sizeof(int64_t) == 0);
  constexpr int64_t kWords = sizeof(id) / sizeof(int64_t);
  int64_t words[kWords];
  std::memcpy(words, &id, sizeof(id));
  RETURN_IF_ERROR(bootstrap_.Broadcast(0, {DType::kInt64, words, kWords}, deadline));
  std::memcpy(&id, words, sizeof(id));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  RETURN_IF_ERROR(Check(Nccl::Get().init_rank(&comm_, size(), id, rank(), &config), "connect"));
  return AwaitReady(deadline, "connecting");
}

absl::Status NcclGroup::AllOk(const absl::Status& own, absl::string_view what, Deadline deadline) {
  int32_t failed = own.ok() ? 0 : 1;
  RETURN_IF_ERROR(bootstrap_.AllReduce(ReduceOp::kSum, {DType::kInt32, &failed, 1}, deadline));
  if (!own.ok() || failed == 0) return own;
  return absl::UnavailableError(absl::StrCat("NCCL: ", failed, " of ", size(), " ranks ", what,
                                             "; their own errors say why"));
}

template <typename Poll>
absl::Status NcclGroup::Await(Poll poll, Deadline deadline, absl::string_view what) {
  const absl::Duration left = deadline.Remaining();
  const Deadline last = Deadline::In(left - std::min(2 * kRequestTimeout, left / 4));
  Deadline request = Deadline::In(kFirstRequest);
  for (int polls = 0;; ++polls) {
    bool done = false;
    RETURN_IF_ERROR(poll(&done));
    if (done) return absl::OkStatus();
    if (polls < kPollsWithoutPause) continue;
    RETURN_IF_ERROR(bootstrap_.usable());
    if (last.Expired()) {
      RETURN_IF_ERROR(bootstrap_.FindFault(
          /*silence_is_fault=*/true, Deadline::In(deadline.Remaining() / 2)));
      return absl::DeadlineExceededError(absl::StrCat(
          "NCCL: ", what, " was not done in time: all ranks answer; is a GPU busy or hung?"));
    }
    if (request.Expired()) {
      RETURN_IF_ERROR(bootstrap_.FindFault(
          /*silence_is_fault=*/false, Deadline::Earlier(last, Deadline::In(kRequestTimeout))));
      request = Deadline::In(kRequestPause);
    }
    absl::SleepFor(kPollPause);
  }
}

absl::Status NcclGroup::AwaitReady(Deadline deadline, absl::string_view what) {
  return Await(
      [&](bool* done) {
        ncclResult_t state = ncclSuccess;
        RETURN_IF_ERROR(Check(Nccl::Get().async_error(comm_, &state), what));
        *done = state != ncclInProgress;
        return Check(state, what);
      },
      deadline, what);
}

absl::Status NcclGroup::AwaitStream(Deadline deadline, absl::string_view what) {
  RETURN_IF_ERROR(AwaitReady(deadline, what));
  return Await(
      [&](bool* done) {
        const cudaError_t state = cudaStreamQuery(stream_);
        *done = state == cudaSuccess;
        if (state != cudaErrorNotReady) return Check(state, what);
        ncclResult_t asynchronous = ncclSuccess;
        RETURN_IF_ERROR(Check(Nccl::Get().async_error(comm_, &asynchronous), what));
        return Check(asynchronous, what);
      },
      deadline, what);
}

absl::Status NcclGroup::Compare(const CollectiveCall& call, Deadline deadline) {
  constexpr int64_t kWords = sizeof(CollectiveCall) / sizeof(int64_t);
  const auto ranks = static_cast<size_t>(size());
  calls_.resize(ranks);
  RETURN_IF_ERROR(bootstrap_.AllGather(
      {DType::kInt64, &call, kWords},
      {DType::kInt64, calls_.data(), kWords * static_cast<int64_t>(ranks)}, deadline));
  std::vector<std::string> peers;
  peers.reserve(ranks);
  for (int r = 0; r < size(); ++r) peers.push_back(peer(r));
  return CheckAgreement(calls_, peers);
}

absl::Status NcclGroup::Break(const absl::Status& status) {
  broken_ = status;
  // The others wait for this rank. Where they know already, this has no effect.
  bootstrap_.Abort(status);
  Nccl::Get().abort(comm_);
  comm_ = nullptr;
  return status;
}

template <typename Prepare, typename Launch>
absl::Status NcclGroup::Run(CollectiveCall call, ConstBuffer in, MutableBuffer* out,
                            Deadline deadline, Prepare prepare, Launch launch) {
  ++number_;
  call.dtype = in.dtype;
  call.count = in.count;
  const absl::Status arguments = CheckArguments(call, in, out, size());
  call.refused = arguments.ok() ? 0 : 1;
  absl::Status status = usable();
  if (status.ok()) status = Compare(call, deadline);
  if (!arguments.ok()) status = arguments;
  if (status.ok()) status = prepare();
  if (status.ok()) {
    const KeepCurrentGpu keep;
    status = Check(cudaSetDevice(device_), "device");
    if (status.ok()) status = launch();
    if (status.ok()) status = AwaitStream(deadline, CollectiveKindName(call.kind));
    if (!status.ok()) status = Break(status);
  }
  if (status.ok()) return status;
  return Annotate(status, absl::StrCat(CallerText(call.kind, number_, rank(), peer(rank())),
                                       ", gpu:", device_));
}

absl::Status NcclGroup::usable() const {
  RETURN_IF_ERROR(bootstrap_.usable());
  return Annotate(broken_, "the NCCL group is broken, connect again on every rank");
}

absl::Status NcclGroup::AllReduce(ReduceOp op, ConstBuffer in, MutableBuffer out,
                                  Deadline deadline) {
  return Run({.kind = CollectiveKind::kAllReduce, .reduce = op}, in, &out, deadline, [&] {
    return Check(Nccl::Get().all_reduce(in.data, out.data, static_cast<size_t>(in.count),
                                        TypeOf(in.dtype), OpOf(op), comm_, stream_),
                 "all_reduce");
  });
}

absl::Status NcclGroup::Broadcast(int root, MutableBuffer buffer, Deadline deadline) {
  return Run({.kind = CollectiveKind::kBroadcast, .root = root}, buffer, nullptr, deadline, [&] {
    return Check(Nccl::Get().broadcast(buffer.data, buffer.data, static_cast<size_t>(buffer.count),
                                       TypeOf(buffer.dtype), root, comm_, stream_),
                 "broadcast");
  });
}

// Every rank sends its part to all, including itself, in one group of sends and receives.
absl::Status NcclGroup::AllGatherV(ConstBuffer in, PlaceGathered place, Deadline deadline) {
  std::vector<int64_t> counts;
  MutableBuffer out;
  const auto prepare = [&] {
    counts.reserve(calls_.size());
    for (const CollectiveCall& call : calls_) counts.push_back(call.count);
    const absl::StatusOr<MutableBuffer> placed = place(counts);
    absl::Status status = placed.status();
    if (status.ok()) status = CheckPlace(*placed, in.dtype, counts);
    if (status.ok()) out = *placed;
    return AllOk(status, "have no place for the output", deadline);
  };
  const auto launch = [&] {
    absl::Status status = Check(Nccl::Get().group_start(), "all_gather");
    if (!status.ok()) return status;
    auto* to = static_cast<char*>(out.data);
    for (int r = 0; r < size() && status.ok(); ++r) {
      const auto count = static_cast<size_t>(counts[static_cast<size_t>(r)]);
      const auto own = static_cast<size_t>(in.count);
      const ncclDataType_t type = TypeOf(in.dtype);
      if (own > 0) status = Check(Nccl::Get().send(in.data, own, type, r, comm_, stream_), "send");
      if (count > 0 && status.ok()) {
        status = Check(Nccl::Get().receive(to, count, type, r, comm_, stream_), "receive");
      }
      to += count * DTypeBytes(in.dtype);
    }
    const absl::Status ended = Check(Nccl::Get().group_end(), "all_gather");
    return status.ok() ? ended : status;
  };
  return Run({.kind = CollectiveKind::kAllGather}, in, nullptr, deadline, prepare, launch);
}

absl::Status NcclGroup::ReduceScatter(ReduceOp op, ConstBuffer in, MutableBuffer out,
                                      Deadline deadline) {
  return Run({.kind = CollectiveKind::kReduceScatter, .reduce = op}, in, &out, deadline, [&] {
    return Check(Nccl::Get().reduce_scatter(in.data, out.data, static_cast<size_t>(out.count),
                                            TypeOf(in.dtype), OpOf(op), comm_, stream_),
                 "reduce_scatter");
  });
}

absl::Status NcclGroup::Barrier(Deadline deadline) {
  return Run({.kind = CollectiveKind::kBarrier}, {}, nullptr, deadline,
             [] { return absl::OkStatus(); });
}

}  // namespace

bool HasNccl() { return true; }

absl::Status NcclStatus() { return Nccl::Get().library.status(); }

absl::StatusOr<std::unique_ptr<CollectiveGroup>> ConnectNccl(CollectiveGroup& bootstrap,
                                                             const NcclOptions& options,
                                                             Deadline deadline) {
  auto group = std::make_unique<NcclGroup>(bootstrap, options);
  const absl::Status status = group->Connect(deadline);
  if (status.ok()) return group;
  return Annotate(
      status, absl::StrCat("NCCL on ", RankText(bootstrap.rank(), bootstrap.peer(bootstrap.rank())),
                           ", gpu:", options.device));
}

}  // namespace cairn
