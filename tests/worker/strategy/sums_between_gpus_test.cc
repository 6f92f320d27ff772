// Workers whose devices are GPUs, simulated by loops on the CPU. Their sums go between the GPUs if
// every worker can connect its own, otherwise between CPUs, or are refused if NCCL was requested.
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/addresses.h"
#include "tests/worker/collective/ranks.h"
#include "tests/worker/strategy/case_support.h"
#include "worker/collective/control_server.h"
#include "worker/strategy/multi_worker_mirrored_strategy.h"

namespace cairn::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// Replaces NCCL: buffers are gpu:0's memory, and go to the bootstrap group through the host.
class ThroughTheHost final : public CollectiveGroup {
 public:
  ThroughTheHost(CollectiveGroup& bootstrap, std::atomic<int>* sums)
      : bootstrap_(bootstrap), sums_(*sums) {}

  int rank() const override { return bootstrap_.rank(); }
  int size() const override { return bootstrap_.size(); }
  const std::string& peer(int rank) const override { return bootstrap_.peer(rank); }
  absl::Status AllReduce(ReduceOp op, ConstBuffer in, MutableBuffer out,
                         Deadline deadline) override {
    ++sums_;
    EXPECT_EQ(in.data, out.data);
    Tensor there = Tensor::Wrap(out.dtype, {out.count}, Gpu(0), nullptr, out.data);
    Tensor host = HostTensor(there).value();
    const absl::Status status = bootstrap_.AllReduce(
        op, MutableBuffer{host.dtype(), host.mutable_data(), host.elements()}, deadline);
    return status.ok() ? ApplyElements(ElementOp::kSet, host, &there) : status;
  }
  absl::Status Broadcast(int, MutableBuffer, Deadline) override { return NotHere(); }
  absl::Status AllGatherV(ConstBuffer, PlaceGathered, Deadline) override { return NotHere(); }
  absl::Status ReduceScatter(ReduceOp, ConstBuffer, MutableBuffer, Deadline) override {
    return NotHere();
  }
  absl::Status Barrier(Deadline) override { return NotHere(); }
  void Abort(const absl::Status& why) override { bootstrap_.Abort(why); }
  absl::Status usable() const override { return bootstrap_.usable(); }

 private:
  static absl::Status NotHere() { return absl::UnimplementedError("sums alone"); }

  CollectiveGroup& bootstrap_;
  std::atomic<int>& sums_;
};

class SumsBetweenGpus : public ::testing::Test {
 protected:
  using Made = absl::StatusOr<std::unique_ptr<MultiWorkerMirroredStrategy>>;

  SumsBetweenGpus() {
    // Except if all strategies' devices are loops in this run.
    if (ReplicaDevice(0).is_cpu()) loops_.emplace();
  }

  // Runs `body` in each of two workers' threads; worker i's GPU connects if joined_[i] is OK.
  void OnWorkers(CommunicationImplementation implementation,
                 const std::function<void(Made made)>& body,
                 const std::vector<Device>& of_the_second = {Gpu(0), Gpu(1)}) {
    const auto server = ControlServer::Start(OwnAddress()).value();
    OnRanks(2, [&](int i) {
      MultiWorkerMirroredOptions options{.workers = {OwnAddress(), OwnAddress()},
                                         .worker_index = i,
                                         .devices = {Gpu(0), Gpu(1)},
                                         .rendezvous_address = server->address()};
      if (i == 1) options.devices = of_the_second;
      options.communication.implementation = implementation;
      options.connect_nccl = [this, i](
                                 CollectiveGroup& bootstrap, const NcclOptions& nccl,
                                 Deadline) -> absl::StatusOr<std::unique_ptr<CollectiveGroup>> {
        EXPECT_EQ(nccl.device, 0);
        if (!joined_[i].ok()) return joined_[i];
        return std::make_unique<ThroughTheHost>(bootstrap, &sums_);
      };
      body(MultiWorkerMirroredStrategy::Create(options));
    });
  }

  // A step of every replica: each has its own tensor, number and rows.
  static void CheckStep(Strategy& strategy, const CommunicationOptions& options = {}) {
    const auto sums = strategy.Run([&options](absl::Span<const Value>) {
      const auto own = static_cast<float>(ReplicaId());
      const IndexedSlices rows{Tensor::Vector<int64_t>({ReplicaId() % 2, 5}),
                               Tensor::Of<float>({2, 1}, {own, 1})};
      return GetReplicaContext()->AllReduce(
          ReduceOp::kSum,
          Value::List({Tensor::Vector<float>({own, 1}), Tensor::Scalar<int64_t>(7), rows}),
          options);
    });
    ASSERT_OK(sums);
    const std::vector<Value> of_replicas = strategy.LocalResults(*sums).value();
    for (const Value& own : of_replicas) {
      EXPECT_THAT(Doubles(own.items()[0]), ElementsAre(6, 4));
      EXPECT_THAT(Doubles(own.items()[1]), ElementsAre(28));
      std::map<double, double> rows;
      const std::vector<double> values = NumbersOf(own.items()[2].slices().values);
      size_t next = 0;
      for (const double row : NumbersOf(own.items()[2].slices().indices)) {
        rows[row] += values[next++];
      }
      EXPECT_THAT(rows, ElementsAre(Pair(0, 2), Pair(1, 4), Pair(5, 4)));
    }
  }

  std::optional<LoopDevices> loops_;
  absl::Status joined_[2];
  std::atomic<int> sums_ = 0;
};

TEST_F(SumsBetweenGpus, GoBetweenGpusIfEveryWorkerCanConnect) {
  for (const auto implementation :
       {CommunicationImplementation::kAuto, CommunicationImplementation::kNccl}) {
    sums_ = 0;
    OnWorkers(implementation, [](Made made) {
      ASSERT_OK(made);
      CheckStep(**made);
      CheckStep(**made, {.implementation = CommunicationImplementation::kNccl});
      // A mean, and a call that requests sums between CPUs.
      EXPECT_THAT(Doubles((*made)->Reduce(ReduceOp::kMean, Scalar((*made)->worker_index()), {})),
                  ElementsAre(0.5));
      CheckStep(**made, {.implementation = CommunicationImplementation::kRing});
    });
    // Two tensors in two steps and one for the mean, of two workers.
    EXPECT_EQ(sums_, 2 * (2 + 2 + 1));
  }
}

TEST_F(SumsBetweenGpus, AWorkerThatFailsMidwayDoesNotLeaveTheOthersWaiting) {
  OnWorkers(CommunicationImplementation::kAuto, [](Made made) {
    ASSERT_OK(made);
    const Value own = (*made)->worker_index() == 0 ? Scalar(1) : Value("no number");
    EXPECT_FALSE((*made)->Reduce(ReduceOp::kSum, own, {}).ok());
    CheckStep(**made);
  });
}

TEST_F(SumsBetweenGpus, GoBetweenCpusIfOneWorkerCannotConnect) {
  joined_[1] = absl::InternalError("no such link");
  OnWorkers(CommunicationImplementation::kAuto, [](Made made) {
    ASSERT_OK(made);
    CheckStep(**made);
    EXPECT_THAT((*made)->ReduceAll(ReduceOp::kSum, {},
                                   {.implementation = CommunicationImplementation::kNccl}),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("use AUTO or RING")));
  });
  OnWorkers(CommunicationImplementation::kRing, [](Made made) {
    ASSERT_OK(made);
    CheckStep(**made);
  });
  EXPECT_EQ(sums_, 0);
}

TEST_F(SumsBetweenGpus, IfRequestedAreRefusedOnEveryWorkerWithTheReason) {
  joined_[1] = absl::InternalError("no such link");
  std::atomic<int> reasons = 0;
  OnWorkers(CommunicationImplementation::kNccl, [&](Made made) {
    EXPECT_THAT(made, StatusIs(absl::StatusCode::kFailedPrecondition,
                               HasSubstr("NCCL: 1 of 2 workers cannot")));
    if (made.status().message().find("no such link") != std::string::npos) ++reasons;
  });
  EXPECT_EQ(reasons, 1);
  OnWorkers(CommunicationImplementation::kNccl,
            [&](Made made) {
              EXPECT_THAT(made, StatusIs(absl::StatusCode::kFailedPrecondition,
                                         HasSubstr("NCCL: 1 of 2 workers cannot")));
              if (made.status().message().find("cpu:0 is no GPU") != std::string::npos) ++reasons;
            },
            {Cpu(0), Cpu(1)});
  EXPECT_EQ(reasons, 2);
}

}  // namespace
}  // namespace cairn::test
