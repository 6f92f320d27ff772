// Workers whose devices are GPUs, simulated by loops on the CPU. Their float32 tensors are summed
// between all GPUs if every worker can connect its own, otherwise between CPUs, or are refused if
// NCCL was requested.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/support/addresses.h"
#include "tests/support/loop_ranks.h"
#include "tests/worker/collective/ranks.h"
#include "tests/worker/strategy/case_support.h"
#include "worker/collective/control_server.h"
#include "worker/strategy/multi_worker_mirrored_strategy.h"

namespace cairn::test {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class SumsBetweenGpus : public ::testing::Test {
 protected:
  using Made = absl::StatusOr<std::unique_ptr<MultiWorkerMirroredStrategy>>;

  SumsBetweenGpus() {
    // Except if all strategies' devices are loops in this run.
    if (ReplicaDevice(0).is_cpu()) loops_.emplace();
  }
  // On GPUs, NCCL connects them; it cannot if logical GPUs share one.
  void SetUp() override {
    if (!OnGpus()) return;
    std::set<int> gpus;
    for (int i = 0; i < std::min(4, UsableGpuCount()); ++i) gpus.insert(PhysicalGpu(Gpu(i)));
    if (gpus.size() < 4) GTEST_SKIP() << "needs four GPUs";
  }
  static bool OnGpus() {
    const char* const kind = std::getenv("CAIRN_TEST_DEVICES");
    return kind != nullptr && absl::string_view(kind) == "gpu";
  }

  // From here on GPUs are loops of their own; *queue becomes that of the second worker's first one.
  static void KeepQueueOfGpu2(LoopQueue** queue) {
    DeviceTensors::Reset([queue](Device device) {
      auto made = std::make_unique<LoopQueue>();
      if (device == Gpu(2)) *queue = made.get();
      return absl::StatusOr<std::unique_ptr<DeviceQueue>>(std::move(made));
    });
  }
  // A value to sum: 100 ones on each of the worker's GPUs.
  static std::vector<Value::Sequence> Ones(const MultiWorkerMirroredStrategy& strategy) {
    std::vector<Value::Sequence> locals(1);
    for (const Device device : strategy.worker_devices()) {
      locals[0].emplace_back(FullTensor(DType::kFloat32, {100}, 1, device).value());
    }
    return locals;
  }

  // Runs `body` in each of two workers' threads; worker i's GPUs connect if joined_[i] is OK.
  void OnWorkers(CommunicationImplementation implementation,
                 const std::function<void(Made made)>& body,
                 const std::vector<Device>& of_the_second = {Gpu(2), Gpu(3)}) {
    const auto server = ControlServer::Start(OwnAddress()).value();
    rendezvous_ = std::make_shared<LoopRendezvous>(4, absl::Seconds(30));
    OnRanks(2, [&](int i) {
      MultiWorkerMirroredOptions options{.workers = {OwnAddress(), OwnAddress()},
                                         .worker_index = i,
                                         .devices = {Gpu(0), Gpu(1)},
                                         .rendezvous_address = server->address()};
      if (i == 1) options.devices = of_the_second;
      options.communication.implementation = implementation;
      options.join = [this, i](absl::Span<const Device> devices, const NcclPeers& peers)
          -> absl::StatusOr<std::vector<std::unique_ptr<DeviceRank>>> {
        EXPECT_EQ(peers.workers->rank(), i);
        if (OnGpus()) {
          return joined_[i].ok() ? JoinByNccl(devices, peers) : JoinByNccl({Gpu(77)}, peers);
        }
        if (!joined_[i].ok()) return joined_[i];
        std::vector<std::unique_ptr<DeviceRank>> ranks;
        for (size_t d = 0; d < devices.size(); ++d) {
          ranks.push_back(std::make_unique<LoopRank>(rendezvous_, static_cast<size_t>(2 * i) + d));
        }
        return ranks;
      };
      body(MultiWorkerMirroredStrategy::Create(options));
    });
  }

  // A step of every replica: each has its own tensor on its GPU, number and rows.
  static void CheckStep(Strategy& strategy, const CommunicationOptions& options = {},
                        ReduceOp op = ReduceOp::kSum) {
    const auto sums = strategy.Run([&](absl::Span<const Value>) -> absl::StatusOr<Value> {
      const std::shared_ptr<ReplicaContext> context = GetReplicaContext();
      const auto own = static_cast<float>(ReplicaId());
      const Device device =
          strategy.worker_devices()[static_cast<size_t>(context->local_replica())];
      const Tensor tensor = CopyTensor(Tensor::Vector<float>({own, 1}), device).value();
      const IndexedSlices rows{Tensor::Vector<int64_t>({ReplicaId() % 2, 5}),
                               Tensor::Of<float>({2, 1}, {own, 1})};
      return context->AllReduce(op, Value::List({tensor, Tensor::Scalar<double>(7), rows}),
                                options);
    });
    ASSERT_OK(sums);
    const double divisor = op == ReduceOp::kMean ? 4 : 1;
    const std::vector<Value> of_replicas = strategy.LocalResults(*sums).value();
    for (const Value& own : of_replicas) {
      EXPECT_THAT(Doubles(own.items()[0]), ElementsAre(6 / divisor, 4 / divisor));
      EXPECT_THAT(Doubles(own.items()[1]), ElementsAre(28 / divisor));
      std::map<double, double> rows;
      const std::vector<double> values = NumbersOf(own.items()[2].slices().values);
      size_t next = 0;
      for (const double row : NumbersOf(own.items()[2].slices().indices)) {
        rows[row] += divisor * values[next++];
      }
      EXPECT_THAT(rows, ElementsAre(Pair(0, 2), Pair(1, 4), Pair(5, 4)));
    }
  }

  std::optional<LoopDevices> loops_;
  absl::Status joined_[2];
  std::shared_ptr<LoopRendezvous> rendezvous_;
};

TEST_F(SumsBetweenGpus, GoBetweenGpusIfEveryWorkerCanConnect) {
  for (const auto implementation :
       {CommunicationImplementation::kAuto, CommunicationImplementation::kNccl}) {
    OnWorkers(implementation, [](Made made) {
      ASSERT_OK(made);
      CheckStep(**made);
      CheckStep(**made, {.implementation = CommunicationImplementation::kNccl});
      CheckStep(**made, {}, ReduceOp::kMean);
      // A call that requests sums between CPUs.
      CheckStep(**made, {.implementation = CommunicationImplementation::kRing});
    });
    // The float32 tensors of three steps; all four GPUs meet for each.
    EXPECT_EQ(rendezvous_->turns(), OnGpus() ? 0u : 3u);
  }
}

TEST_F(SumsBetweenGpus, DifferentValuesAreRefusedOnEveryWorkerAndTheGroupStaysUsable) {
  OnWorkers(CommunicationImplementation::kAuto, [](Made made) {
    ASSERT_OK(made);
    MultiWorkerMirroredStrategy& strategy = **made;
    const bool other = strategy.worker_index() == 1;
    for (const auto& [count, shape] :
         {std::pair(2, Shape{3}), std::pair(1, Shape{4}), std::pair(1, Shape{3, 1})}) {
      std::vector<Value::Sequence> locals(other ? count : 1);
      for (Value::Sequence& values : locals) {
        for (const Device device : strategy.worker_devices()) {
          values.emplace_back(
              FullTensor(DType::kFloat32, other ? shape : Shape{3}, 1, device).value());
        }
      }
      EXPECT_THAT(strategy.ReduceAll(ReduceOp::kSum, locals, {}),
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           HasSubstr("reduce different numbers or shapes of values")));
    }
    CheckStep(strategy);
  });
}

TEST_F(SumsBetweenGpus, AWorkerThatFailsMidwayDoesNotLeaveTheOthersWaiting) {
  OnWorkers(CommunicationImplementation::kAuto, [](Made made) {
    ASSERT_OK(made);
    const Value own = (*made)->worker_index() == 0 ? Scalar(1) : Value("no number");
    EXPECT_FALSE((*made)->Reduce(ReduceOp::kSum, own, {}).ok());
    CheckStep(**made);
  });
}

// The worker fails before its ranks' first call.
TEST_F(SumsBetweenGpus, AWorkerWithoutMemoryForTheSumsDoesNotLeaveTheOthersWaiting) {
  if (!loops_.has_value()) GTEST_SKIP() << "limits the allocations of its own loops";
  LoopQueue* queue = nullptr;
  KeepQueueOfGpu2(&queue);
  OnWorkers(CommunicationImplementation::kAuto, [&queue](Made made) {
    ASSERT_OK(made);
    const std::vector<Value::Sequence> locals = Ones(**made);
    const bool fails = (*made)->worker_index() == 1;
    if (fails) queue->LimitAllocations(0);
    EXPECT_THAT((*made)->ReduceAll(ReduceOp::kSum, locals, {}),
                StatusIs(fails ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kAborted,
                         HasSubstr(fails ? "" : "another rank: ")));
  });
}

// A device that fails still takes part in the sum, with unspecified data.
TEST_F(SumsBetweenGpus, AWorkerWhoseOpsFailedFailsTheSumOnEveryWorker) {
  if (!loops_.has_value()) GTEST_SKIP() << "its own loops fail";
  LoopQueue* queue = nullptr;
  KeepQueueOfGpu2(&queue);
  OnWorkers(CommunicationImplementation::kAuto, [&queue](Made made) {
    ASSERT_OK(made);
    const std::vector<Value::Sequence> locals = Ones(**made);
    ASSERT_OK((*made)->ReduceAll(ReduceOp::kSum, locals, {}));
    const bool fails = (*made)->worker_index() == 1;
    if (fails) queue->Fail(absl::InternalError("no kernel"));
    EXPECT_THAT((*made)->ReduceAll(ReduceOp::kSum, locals, {}),
                StatusIs(fails ? absl::StatusCode::kInternal : absl::StatusCode::kAborted,
                         HasSubstr(fails ? "no kernel" : "1 of 2 workers failed")));
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
  EXPECT_EQ(rendezvous_->turns(), 0u);
}

TEST_F(SumsBetweenGpus, IfRequestedAreRefusedOnEveryWorkerWithTheReason) {
  joined_[1] = absl::InternalError("no such link");
  const char* const reason = OnGpus() ? "gpu:77: CUDA" : "no such link";
  std::atomic<int> reasons = 0;
  OnWorkers(CommunicationImplementation::kNccl, [&](Made made) {
    EXPECT_THAT(made, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("sums by NCCL: ")));
    if (made.status().message().find(reason) != std::string::npos) ++reasons;
  });
  EXPECT_EQ(reasons, 1);
  OnWorkers(CommunicationImplementation::kNccl,
            [&](Made made) {
              EXPECT_THAT(made, StatusIs(absl::StatusCode::kFailedPrecondition,
                                         AnyOf(HasSubstr("NCCL: 1 of 2 workers cannot"),
                                               HasSubstr("NCCL: NCCL sums between"))));
              if (made.status().message().find("cpu:0 is no GPU") != std::string::npos) ++reasons;
            },
            {Cpu(0), Cpu(1)});
  EXPECT_EQ(reasons, 2);
}

}  // namespace
}  // namespace cairn::test
