// NCCL's functions over the streams of the fake runtime.
#include "tests/support/fake_cuda/include/nccl.h"

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "common/float16.h"
#include "tests/support/fake_cuda/fake_gpus.h"
#include "tests/support/fake_cuda/fake_nccl_comm.h"

using cairn::test::fake::NcclOp;
using cairn::test::fake::NcclRank;

struct ncclComm {
  std::shared_ptr<NcclRank> rank;
};

namespace {

namespace fake = cairn::test::fake;

// What a thread has asked for since its ncclGroupStart.
struct Group {
  int depth = 0;
  struct Queued {
    cudaStream_t stream = nullptr;
    std::vector<NcclOp> ops;
  };
  std::map<ncclComm_t, Queued> queued;
  std::vector<std::shared_ptr<NcclRank>> connecting;
};
thread_local Group group;

size_t SizeOf(ncclDataType_t type) {
  switch (type) {
    case ncclInt8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclFloat32: return 4;
    case ncclInt64:
    case ncclFloat64: return 8;
    default: return 0;
  }
}

template <typename T>
void AddAs(const std::vector<const char*>& terms, size_t count, int divisor, void* to) {
  auto* const out = static_cast<T*>(to);
  for (size_t i = 0; i < count; ++i) {
    T sum = 0;
    for (const char* const term : terms) sum += reinterpret_cast<const T*>(term)[i];
    out[i] = sum / static_cast<T>(divisor);
  }
}

template <typename Decode, typename Encode>
void AddNarrow(const std::vector<const char*>& terms, size_t count, int divisor, void* to,
               Decode decode, Encode encode) {
  auto* const out = static_cast<uint16_t*>(to);
  for (size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (const char* const term : terms) sum += decode(reinterpret_cast<const uint16_t*>(term)[i]);
    out[i] = encode(sum / static_cast<float>(divisor));
  }
}

void Add(ncclDataType_t type, const std::vector<const char*>& terms, size_t count, int divisor,
         void* to) {
  switch (type) {
    case ncclFloat32: return AddAs<float>(terms, count, divisor, to);
    case ncclFloat64: return AddAs<double>(terms, count, divisor, to);
    case ncclInt32: return AddAs<int32_t>(terms, count, divisor, to);
    case ncclInt64: return AddAs<int64_t>(terms, count, divisor, to);
    case ncclFloat16:
      return AddNarrow(terms, count, divisor, to, cairn::DecodeFloat16, cairn::EncodeFloat16);
    case ncclBfloat16:
      return AddNarrow(terms, count, divisor, to, cairn::DecodeBFloat16, cairn::EncodeBFloat16);
    default: return;
  }
}

// The sum of every rank's `count` numbers at `own`, to `to`.
void AddReduction(const NcclRank& rank, ncclDataType_t type, ncclRedOp_t op, const char* own,
                  size_t count, void* to, NcclOp* out) {
  std::vector<const char*> terms(static_cast<size_t>(rank.ranks()), own);
  for (int r = 0; r < rank.ranks(); ++r) {
    if (r == rank.rank()) continue;
    auto memory = std::make_shared<std::vector<char>>(count * SizeOf(type));
    out->transfers.push_back({.peer = r, .to = memory->data(), .bytes = memory->size()});
    terms[static_cast<size_t>(r)] = memory->data();
    out->memory.push_back(std::move(memory));
  }
  const int divisor = op == ncclAvg ? rank.ranks() : 1;
  out->finish = [=] { Add(type, terms, count, divisor, to); };
}

ncclResult_t Flush() {
  for (const std::shared_ptr<NcclRank>& rank : std::exchange(group.connecting, {})) {
    rank->Connect();
  }
  for (auto& [comm, queued] : std::exchange(group.queued, {})) {
    comm->rank->Queue(std::move(queued.ops), queued.stream);
  }
  return ncclInProgress;
}

// Checks a call and has `make` add what it does.
template <typename Make>
ncclResult_t Collective(const char* name, ncclComm_t comm, cudaStream_t stream,
                        std::vector<const void*> memory, size_t bytes, Make make) {
  if (fake::Call(name, stream, bytes) != cudaSuccess) return ncclUnhandledCudaError;
  if (comm == nullptr || comm->rank->state() != ncclSuccess) return ncclInvalidArgument;
  const NcclRank& rank = *comm->rank;
  if (stream == nullptr || fake::DeviceOf(stream) != rank.device()) return ncclInvalidArgument;
  for (const void* const at : memory) {
    if (bytes > 0 && !fake::IsDeviceMemory(at, rank.device())) return ncclInvalidArgument;
  }
  fake::CountNcclBytes(bytes);
  NcclOp op;
  make(rank, &op);
  Group::Queued& queued = group.queued[comm];
  queued.stream = stream;
  queued.ops.push_back(std::move(op));
  return group.depth > 0 ? ncclSuccess : Flush();
}

const char* Chars(const void* memory) { return static_cast<const char*>(memory); }
char* Chars(void* memory) { return static_cast<char*>(memory); }

}  // namespace

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (fake::Call("ncclGetUniqueId") != cudaSuccess) return ncclUnhandledCudaError;
  std::strncpy(id->internal, fake::Board::NewName().c_str(), sizeof(id->internal) - 1);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (fake::Call("ncclCommInitRankConfig") != cudaSuccess) return ncclUnhandledCudaError;
  if (ranks < 1 || ranks > fake::kMaxNcclRanks || rank < 0 || rank >= ranks) {
    return ncclInvalidArgument;
  }
  if (config->blocking != 0) return ncclInvalidUsage;  // not imitated
  int device = 0;
  cudaGetDevice(&device);
  *comm = new ncclComm{std::make_shared<NcclRank>(rank, ranks, device, id.internal)};
  group.connecting.push_back((*comm)->rank);
  return group.depth > 0 ? ncclSuccess : Flush();
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  fake::Call("ncclCommFinalize");
  comm->rank->Finalize();
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  fake::Call("ncclCommDestroy");
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  fake::Call("ncclCommAbort");
  comm->rank->Abort();
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (comm == nullptr) return ncclInvalidArgument;
  *error = comm->rank->state();
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    default: return "another error";
  }
}

ncclResult_t ncclGroupStart() {
  if (fake::Call("ncclGroupStart") != cudaSuccess) return ncclUnhandledCudaError;
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) return ncclInvalidUsage;
  --group.depth;
  const ncclResult_t flushed = group.depth == 0 ? Flush() : ncclSuccess;
  return fake::Call("ncclGroupEnd") == cudaSuccess ? flushed : ncclUnhandledCudaError;
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * SizeOf(type);
  return Collective("ncclAllReduce", comm, stream, {from, to}, bytes,
                    [=](const NcclRank& rank, NcclOp* out) {
                      for (int r = 0; r < rank.ranks(); ++r) {
                        if (r == rank.rank()) continue;
                        out->transfers.push_back({.peer = r, .from = Chars(from), .bytes = bytes});
                      }
                      AddReduction(rank, type, op, Chars(from), count, to, out);
                    });
}

ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * SizeOf(type);
  return Collective("ncclReduce", comm, stream, {from}, bytes,
                    [=](const NcclRank& rank, NcclOp* out) {
                      if (rank.rank() == root) {
                        return AddReduction(rank, type, op, Chars(from), count, to, out);
                      }
                      out->transfers.push_back({.peer = root, .from = Chars(from), .bytes = bytes});
                    });
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * SizeOf(type);
  return Collective("ncclBroadcast", comm, stream, {from, to}, bytes,
                    [=](const NcclRank& rank, NcclOp* out) {
                      if (rank.rank() != root) {
                        out->transfers.push_back({.peer = root, .to = Chars(to), .bytes = bytes});
                        return;
                      }
                      for (int r = 0; r < rank.ranks(); ++r) {
                        if (r == root) continue;
                        out->transfers.push_back({.peer = r, .from = Chars(from), .bytes = bytes});
                      }
                      out->finish = [=] { std::memmove(to, from, bytes); };
                    });
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * SizeOf(type);
  return Collective(
      "ncclReduceScatter", comm, stream, {from, to}, bytes, [=](const NcclRank& rank, NcclOp* out) {
        const auto part = [&](int r) { return Chars(from) + static_cast<size_t>(r) * bytes; };
        for (int r = 0; r < rank.ranks(); ++r) {
          if (r == rank.rank()) continue;
          out->transfers.push_back({.peer = r, .from = part(r), .bytes = bytes});
        }
        AddReduction(rank, type, op, part(rank.rank()), count, to, out);
      });
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * SizeOf(type);
  return Collective("ncclSend", comm, stream, {from}, bytes, [=](const NcclRank&, NcclOp* out) {
    out->transfers.push_back({.peer = peer, .from = Chars(from), .bytes = bytes});
  });
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  const size_t bytes = count * SizeOf(type);
  return Collective("ncclRecv", comm, stream, {to}, bytes, [=](const NcclRank&, NcclOp* out) {
    out->transfers.push_back({.peer = peer, .to = Chars(to), .bytes = bytes});
  });
}
