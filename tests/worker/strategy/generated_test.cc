// Generated programs: random strategies, replicas, dtypes, shapes and values, checked against plain
// arithmetic and against rules that hold for all numbers. Values are small whole numbers, so sums
// are exact. A failure names the seed; CAIRN_SEED=N runs only that seed.
//
// The rules that hold for all numbers are checked with several workers too: each worker is a thread
// that runs the same program with its own part of the replicas.
#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>

#include "tests/worker/collective/ranks.h"
#include "tests/worker/strategy/case_support.h"
#include "tests/worker/strategy/served_strategy.h"
#include "worker/ops/tensor_math.h"
#include "worker/strategy/multi_worker_mirrored_strategy.h"
#include "worker/strategy/one_device_strategy.h"

namespace cairn::test {
namespace {

using ::testing::DoubleNear;
using ::testing::Pointwise;

using Numbers = std::vector<double>;

constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kInt64};

bool IsFloat(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kFloat64; }

// The random choices of one program, the same for all its workers.
class Program {
 public:
  // Of one worker, with a strategy of any kind but multi-worker mirrored.
  explicit Program(uint32_t seed) : random_(seed) {
    replicas = 1 + Below(4);
    dtype = kDTypes[Below(4)];
    shape = AnyShape(0, 3);
    Make();
  }
  // Of worker `worker` of `workers`, which meet at `rendezvous`.
  Program(uint32_t seed, int32_t worker, int32_t workers, const std::string& rendezvous)
      : random_(seed) {
    const int32_t own = 1 + Below(2);
    replicas = workers * own;
    dtype = kDTypes[Below(4)];
    shape = AnyShape(0, 3);
    first_replica_ = static_cast<size_t>(worker * own);
    strategy = MultiWorkerMirroredStrategy::Create({.workers = Addresses(workers),
                                                    .worker_index = worker,
                                                    .devices = ReplicaDevices(own),
                                                    .rendezvous_address = rendezvous})
                   .value();
  }

  int32_t Below(int32_t end) { return std::uniform_int_distribution<int32_t>(0, end - 1)(random_); }
  template <class T>
  T Of(std::initializer_list<T> all) {
    return all.begin()[Below(static_cast<int32_t>(all.size()))];
  }
  Shape AnyShape(int32_t fewest_axes, int32_t most_axes) {
    Shape made;
    for (int32_t i = fewest_axes + Below(most_axes - fewest_axes + 1); i > 0; --i) {
      made.push_back(1 + Below(4));
    }
    return made;
  }
  Numbers AnyNumbers(const Shape& of) {
    Numbers numbers(static_cast<size_t>(ElementCount(of).value()));
    for (double& number : numbers) number = Below(17) - 8;
    return numbers;
  }
  std::vector<Numbers> OfEveryReplica() {
    std::vector<Numbers> all;
    for (int32_t r = 0; r < replicas; ++r) all.push_back(AnyNumbers(shape));
    return all;
  }
  Value ValueOf(const std::vector<Numbers>& of_replicas) const {
    Value::Sequence values;
    for (size_t r = 0; r < of_replicas.size(); ++r) {
      values.emplace_back(On(TensorOf(dtype, shape, of_replicas[r]), r));
    }
    return Own(std::move(values));
  }
  // This worker's part of the replicas' values.
  Value Own(Value::Sequence of_replicas) const {
    const auto first = of_replicas.begin() + static_cast<ptrdiff_t>(first_replica_);
    return PerReplica(Value::Sequence(first, first + strategy->local_replicas()));
  }
  static Tensor TensorOf(DType dtype, const Shape& shape, const Numbers& numbers) {
    Tensor tensor = Tensor::Uninitialized(dtype, shape);
    for (size_t i = 0; i < numbers.size(); ++i) {
      switch (dtype) {
        case DType::kFloat32:
          tensor.mutable_values<float>()[i] = static_cast<float>(numbers[i]);
          break;
        case DType::kFloat64: tensor.mutable_values<double>()[i] = numbers[i]; break;
        case DType::kInt32:
          tensor.mutable_values<int32_t>()[i] = static_cast<int32_t>(numbers[i]);
          break;
        default: tensor.mutable_values<int64_t>()[i] = static_cast<int64_t>(numbers[i]);
      }
    }
    return tensor;
  }
  // The device of a replica, which may be another worker's, or of this worker's like it.
  Device DeviceOf(size_t replica) const {
    return strategy->worker_devices()[replica % strategy->worker_devices().size()];
  }
  Tensor On(const Tensor& tensor, size_t replica) const {
    return CopyTensor(tensor, DeviceOf(replica)).value();
  }
  VariablePtr NewVariable(
      const Tensor& initial, VariableAggregation aggregation,
      VariableSynchronization synchronization = VariableSynchronization::kAuto) {
    return VariableOf(*strategy, initial, aggregation, synchronization,
                      absl::StrCat("v", variables_++));
  }
  std::string Text() const {
    return absl::StrCat(strategy->name(), " of ", replicas, ", ", DTypeName(dtype), " ",
                        ShapeText(shape));
  }

  int32_t replicas = 1;
  DType dtype = DType::kFloat32;
  Shape shape;
  std::unique_ptr<Strategy> strategy;

 private:
  void Make() {
    const int32_t kind = Below(4);
    if (kind == 2) replicas = 1;
    strategy = kind == 0   ? Mirrored(replicas)
               : kind == 1 ? Central(replicas)
               : kind == 2 ? std::make_unique<OneDeviceStrategy>(ReplicaDevice(0))
                           : OnServers(replicas);
  }
  // On the servers of this process, as a job that they do not know yet.
  static std::unique_ptr<Strategy> OnServers(int32_t replicas) {
    static EngineCluster servers(2, Durability::kOff);
    static int jobs = 0;
    return ConnectStrategy(servers, 2, absl::StrCat("job", jobs++), 0, 1,
                           {.worker_devices = ReplicaDevices(replicas)});
  }

  std::mt19937 random_;
  size_t first_replica_ = 0;  // of this worker
  int variables_ = 0;
};

Numbers SumOf(const std::vector<Numbers>& all) {
  Numbers sum(all[0].size(), 0.0);
  for (const Numbers& numbers : all) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += numbers[i];
  }
  return sum;
}

Numbers Scaled(Numbers numbers, double factor) {
  for (double& number : numbers) number *= factor;
  return numbers;
}

auto Are(const Numbers& want) { return Pointwise(DoubleNear(1e-4), want); }

// Calls `body` with several seeds.
void ForSeeds(int count, const std::function<void(uint32_t)>& body) {
  const char* const given = std::getenv("CAIRN_SEED");
  const uint32_t fresh = std::random_device()();
  if (given == nullptr) std::cout << "the last seeds begin at " << fresh << "\n";
  for (int i = 0; i < count; ++i) {
    uint32_t seed = i < count / 2 ? static_cast<uint32_t>(i) : fresh + static_cast<uint32_t>(i);
    if (given != nullptr) seed = static_cast<uint32_t>(std::strtoul(given, nullptr, 10));
    body(seed);
    if (given != nullptr || ::testing::Test::HasFailure()) return;
  }
}

// Runs `body` with the programs of several seeds.
void OfPrograms(int count, const std::function<void(Program&)>& body) {
  ForSeeds(count, [&body](uint32_t seed) {
    Program program(seed);
    SCOPED_TRACE(absl::StrCat("CAIRN_SEED=", seed, ": ", program.Text()));
    body(program);
  });
}

// The same, and also with some programs of several workers.
void OfAllPrograms(int count, const std::function<void(Program&)>& body) {
  OfPrograms(count, body);
  ForSeeds(count / 10, [&body](uint32_t seed) {
    const int32_t workers = 2 + static_cast<int32_t>(seed % 2);
    const auto server = ControlServer::Start(OwnAddress()).value();
    OnRanks(workers, [&](int worker) {
      Program program(seed, worker, workers, server->address());
      SCOPED_TRACE(absl::StrCat("CAIRN_SEED=", seed, ": worker ", worker, " of ", workers, ", ",
                                program.Text()));
      body(program);
    });
  });
}

TEST(Generated, ReduceIsTheSumAndTheMeanInAnyOrderOfReplicas) {
  OfAllPrograms(200, [](Program& p) {
    std::vector<Numbers> values = p.OfEveryReplica();
    const Numbers sum = SumOf(values);
    const Numbers mean = Scaled(sum, 1.0 / p.replicas);
    for (int turn = 0; turn < 2; ++turn) {
      const Value value = p.ValueOf(values);
      EXPECT_THAT(Doubles(p.strategy->Reduce(ReduceOp::kSum, value, {})), Are(sum));
      EXPECT_THAT(Doubles(p.strategy->Reduce(ReduceOp::kMean, value, {})), Are(mean));
      std::rotate(values.begin(), values.begin() + p.Below(p.replicas), values.end());
    }
  });
}

// Sums and means of all rows do not depend on the number of replicas that share the batch, or on
// the sizes of their parts.
TEST(Generated, AxisZeroIsReducedAsIfOneReplicaHadTheWholeBatch) {
  OfAllPrograms(200, [](Program& p) {
    const Shape row = p.AnyShape(0, 2);
    const auto width = static_cast<size_t>(ElementCount(row).value());
    Value::Sequence parts;
    Numbers sum(width, 0.0);
    int32_t rows = 0;
    for (int32_t r = 0; r < p.replicas; ++r) {
      const int32_t own = 1 + p.Below(4);
      rows += own;
      Shape shape = {own};
      shape.insert(shape.end(), row.begin(), row.end());
      const Numbers numbers = p.AnyNumbers(shape);
      for (size_t i = 0; i < numbers.size(); ++i) sum[i % width] += numbers[i];
      parts.emplace_back(p.On(Program::TensorOf(p.dtype, shape, numbers), static_cast<size_t>(r)));
    }
    const Value value = p.Own(parts);
    EXPECT_THAT(Doubles(p.strategy->Reduce(ReduceOp::kSum, value, {{0}})), Are(sum));
    EXPECT_THAT(Doubles(p.strategy->Reduce(ReduceOp::kMean, value, {{0}})),
                Are(Scaled(sum, 1.0 / rows)));
  });
}

TEST(Generated, ReduceToGivesTheSameSinglyInABatchAndInStructures) {
  OfAllPrograms(100, [](Program& p) {
    const ReduceOp op = p.Of({ReduceOp::kSum, ReduceOp::kMean});
    const std::vector<Numbers> first = p.OfEveryReplica(), second = p.OfEveryReplica();
    const Value a = p.ValueOf(first), b = p.ValueOf(second);
    const Device to = p.DeviceOf(static_cast<size_t>(p.Below(p.replicas)));
    const Numbers of_a = Doubles(p.strategy->ReduceTo(op, a, to));
    const Numbers of_b = Doubles(p.strategy->ReduceTo(op, b, to));
    EXPECT_THAT(of_a, Are(Doubles(p.strategy->Reduce(op, a, {}))));
    const std::vector<std::pair<Value, Destinations>> pairs = {{a, to}, {b, to}};
    const auto both = p.strategy->BatchReduceTo(op, pairs);
    ASSERT_OK(both);
    EXPECT_THAT(Doubles((*both)[0]), Are(of_a));
    EXPECT_THAT(Doubles((*both)[1]), Are(of_b));
    const auto dict =
        p.strategy->Reduce(op, Value::OfDict({{"a", a}, {"b", Value::List({b, a})}}), {});
    ASSERT_OK(dict);
    EXPECT_THAT(Doubles(dict->dict().at("a")), Are(of_a));
    EXPECT_THAT(Doubles(dict->dict().at("b").items()[0]), Are(of_b));
    EXPECT_THAT(Doubles(dict->dict().at("b").items()[1]), Are(of_a));
  });
}

// All-reduce gives every replica the result of a reduction, and all-gather that of a gather.
TEST(Generated, EveryReplicaGetsTheResultOfTheReductionInTheScope) {
  OfAllPrograms(60, [](Program& p) {
    const ReduceOp op = p.Of({ReduceOp::kSum, ReduceOp::kMean});
    const Value value = p.ValueOf(p.OfEveryReplica());
    const Numbers want = Doubles(p.strategy->Reduce(op, value, {}));
    const auto all = p.strategy->Run(
        [op](absl::Span<const Value> args) { return GetReplicaContext()->AllReduce(op, args[0]); },
        {value});
    ASSERT_OK(all);
    const auto locals = p.strategy->LocalResults(*all);
    ASSERT_OK(locals);
    EXPECT_EQ(locals->size(), static_cast<size_t>(p.strategy->local_replicas()));
    for (const Value& local : *locals) EXPECT_THAT(Doubles(local), Are(want));
  });
}

// The reference: concatenates blocks along an axis.
Numbers Concatenated(const std::vector<Shape>& shapes, const std::vector<Numbers>& parts,
                     size_t axis) {
  Numbers out;
  const Shape& first = shapes[0];
  int64_t outer = 1;
  for (size_t i = 0; i < axis; ++i) outer *= first[i];
  for (int64_t o = 0; o < outer; ++o) {
    for (size_t r = 0; r < parts.size(); ++r) {
      const auto block = static_cast<int64_t>(parts[r].size()) / outer;
      const auto begin = parts[r].begin() + o * block;
      out.insert(out.end(), begin, begin + block);
    }
  }
  return out;
}

TEST(Generated, GatherConcatenatesAlongAnyAxis) {
  OfAllPrograms(100, [](Program& p) {
    const Shape base = p.AnyShape(1, 3);
    const auto axis = static_cast<size_t>(p.Below(static_cast<int32_t>(base.size())));
    std::vector<Shape> shapes;
    std::vector<Numbers> parts;
    Value::Sequence values;
    for (int32_t r = 0; r < p.replicas; ++r) {
      shapes.push_back(base);
      shapes.back()[axis] = 1 + p.Below(4);
      parts.push_back(p.AnyNumbers(shapes.back()));
      values.emplace_back(
          p.On(Program::TensorOf(p.dtype, shapes.back(), parts.back()), static_cast<size_t>(r)));
    }
    const Value value = p.Own(values);
    const Numbers want = Concatenated(shapes, parts, axis);
    const auto counted = static_cast<int64_t>(axis);
    const int64_t from_the_end = counted - static_cast<int64_t>(base.size());
    EXPECT_THAT(Doubles(p.strategy->Gather(value, counted)), Are(want));
    EXPECT_THAT(Doubles(p.strategy->Gather(value, from_the_end)), Are(want));
    const auto all = p.strategy->Run(
        [counted](absl::Span<const Value> args) {
          return GetReplicaContext()->AllGather(args[0], counted);
        },
        {value});
    ASSERT_OK(all);
    const auto locals = p.strategy->LocalResults(*all);
    ASSERT_OK(locals);
    for (const Value& local : *locals) EXPECT_THAT(Doubles(local), Are(want));
  });
}

// Row sums of slices, as a dense table.
Numbers Dense(const IndexedSlices& slices, size_t rows) {
  Numbers table(rows, 0.0);
  const Numbers indices = NumbersOf(slices.indices);
  const Numbers values = NumbersOf(slices.values);
  for (size_t i = 0; i < indices.size(); ++i) table[static_cast<size_t>(indices[i])] += values[i];
  return table;
}

TEST(Generated, ReducedSlicesAreTheSumOfTheirDenseTensors) {
  constexpr size_t kRows = 6;
  OfAllPrograms(60, [](Program& p) {
    p.dtype = p.Of({DType::kFloat32, DType::kFloat64});
    Value::Sequence values;
    Numbers want(kRows, 0.0);
    for (int32_t r = 0; r < p.replicas; ++r) {
      const int64_t count = 1 + p.Below(4);
      std::vector<int64_t> indices;
      for (int64_t i = 0; i < count; ++i) indices.push_back(p.Below(kRows));
      const IndexedSlices slices = {Tensor::Vector<int64_t>(indices),
                                    Program::TensorOf(p.dtype, {count}, p.AnyNumbers({count}))};
      const Numbers dense = Dense(slices, kRows);
      for (size_t i = 0; i < kRows; ++i) want[i] += dense[i];
      values.emplace_back(slices);
    }
    const Value value = p.Own(values);
    const auto all = p.strategy->Run(
        [](absl::Span<const Value> args) {
          return GetReplicaContext()->AllReduce(ReduceOp::kSum, args[0]);
        },
        {value});
    ASSERT_OK(all);
    const auto locals = p.strategy->LocalResults(*all);
    ASSERT_OK(locals);
    for (const Value& local : *locals) EXPECT_THAT(Dense(local.slices(), kRows), Are(want));
  });
}

// --- Variables

// A variable with copies, in plain arithmetic.
struct Model {
  std::vector<Numbers> copies;
  VariableAggregation aggregation = VariableAggregation::kNone;
  bool on_read = false;

  static void Do(AssignOp op, const Numbers& by, Numbers* copy) {
    for (size_t i = 0; i < by.size(); ++i) {
      double& at = (*copy)[i];
      at = op == AssignOp::kAssign ? by[i] : op == AssignOp::kAdd ? at + by[i] : at - by[i];
    }
  }
  Numbers Aggregated(const std::vector<Numbers>& of_replicas) const {
    if (aggregation == VariableAggregation::kOnlyFirstReplica) return of_replicas[0];
    const Numbers sum = SumOf(of_replicas);
    return aggregation == VariableAggregation::kSum
               ? sum
               : Scaled(sum, 1.0 / static_cast<double>(of_replicas.size()));
  }
  void WriteInReplicas(AssignOp op, const std::vector<Numbers>& of_replicas) {
    if (on_read) {
      for (size_t r = 0; r < copies.size(); ++r) Do(op, of_replicas[r], &copies[r]);
      return;
    }
    const Numbers by = Aggregated(of_replicas);
    for (Numbers& copy : copies) Do(op, by, &copy);
  }
  void WriteInScope(AssignOp op, Numbers by) {
    if (on_read && aggregation == VariableAggregation::kSum) {
      by = Scaled(by, 1.0 / static_cast<double>(copies.size()));
    }
    for (Numbers& copy : copies) Do(op, by, &copy);
  }
  Numbers Read() const { return on_read ? Aggregated(copies) : copies[0]; }
};

// A variable beside its model.
class Pair {
 public:
  Pair(Program& p, VariableAggregation aggregation, bool on_read) : p_(p) {
    model.aggregation = aggregation;
    const Numbers initial = p.AnyNumbers(p.shape);
    variable =
        p.NewVariable(Program::TensorOf(p.dtype, p.shape, initial), aggregation,
                      on_read ? VariableSynchronization::kOnRead : VariableSynchronization::kAuto);
    const size_t copies = variable->components().size();
    // OneDeviceStrategy makes plain variables.
    model.on_read = on_read && p.strategy->name() == "MirroredStrategy";
    model.copies.assign(copies, initial);
  }

  absl::Status WriteInReplicas(AssignOp op, const std::vector<Numbers>& of_replicas) {
    const Value values = p_.ValueOf(of_replicas);
    return p_.strategy
        ->Run(
            [&](absl::Span<const Value> args) -> absl::StatusOr<Value> {
              const absl::Status status = variable->Write(op, args[0]);
              if (!status.ok()) return status;
              return Value();
            },
            {values})
        .status();
  }
  absl::Status WriteInScope(AssignOp op, const Numbers& by) {
    const Scope scope = p_.strategy->EnterScope().value();
    return variable->Write(op, Program::TensorOf(p_.dtype, p_.shape, by));
  }
  void Compare() const {
    const std::vector<VariablePtr> copies = variable->components();
    for (size_t i = 0; i < copies.size(); ++i) {
      EXPECT_THAT(NumbersOf(copies[i]->Read().value()), Are(model.copies[i])) << "copy " << i;
    }
    const absl::StatusOr<Tensor> read = variable->Read();
    ASSERT_OK(read);
    EXPECT_THAT(NumbersOf(*read), Are(model.Read()));
  }

  VariablePtr variable;
  Model model;

 private:
  Program& p_;
};

// One random step of a variable of this kind; the golden records cover the other kinds.
void Step(Program& p, Pair& pair, std::string* story) {
  const AssignOp op = p.Of({AssignOp::kAssign, AssignOp::kAdd, AssignOp::kSub});
  const bool sum_on_read =
      pair.model.on_read && pair.model.aggregation == VariableAggregation::kSum;
  if (p.Below(2) == 0) {
    absl::StrAppend(story, AssignOpName(op), " in replicas; ");
    const std::vector<Numbers> values = p.OfEveryReplica();
    ASSERT_OK(pair.WriteInReplicas(op, values));
    pair.model.WriteInReplicas(op, values);
    return;
  }
  const Numbers by = Scaled(p.AnyNumbers(p.shape), p.replicas);
  absl::StrAppend(story, AssignOpName(op), " in the scope; ");
  const absl::Status status = pair.WriteInScope(op, by);
  if (sum_on_read && op != AssignOp::kAssign) {
    EXPECT_FALSE(status.ok()) << "TensorFlow refuses it";
    if (status.ok()) pair.model.WriteInScope(op, by);
    return;
  }
  ASSERT_OK(status);
  pair.model.WriteInScope(op, by);
}

TEST(Generated, SequencesOfWritesDoWhatPlainArithmeticDoes) {
  OfPrograms(100, [](Program& p) {
    // One copy: the golden records.
    if (p.strategy->name() == "CentralStorageStrategy") return;
    if (p.strategy->name() == "ParameterServerStrategy") return;
    const auto aggregation =
        IsFloat(p.dtype)
            ? p.Of({VariableAggregation::kSum, VariableAggregation::kMean,
                    VariableAggregation::kOnlyFirstReplica})
            : p.Of({VariableAggregation::kSum, VariableAggregation::kOnlyFirstReplica});
    Pair pair(p, aggregation, p.Below(2) == 0);
    std::string story = absl::StrCat(AggregationName(aggregation), " ",
                                     SynchronizationName(pair.variable->synchronization()), ": ");
    for (int i = 1 + p.Below(20); i > 0 && !::testing::Test::HasFailure(); --i) {
      ASSERT_NO_FATAL_FAILURE(Step(p, pair, &story)) << story;
      pair.Compare();
    }
    if (::testing::Test::HasFailure()) ADD_FAILURE() << story;
  });
}

// Two writes of parts equal one write of the whole, also if each replica adds its own part.
TEST(Generated, SplitAdditionsEqualOneAddition) {
  OfAllPrograms(60, [](Program& p) {
    const auto aggregation =
        p.Of({VariableAggregation::kSum, VariableAggregation::kOnlyFirstReplica});
    Pair whole(p, aggregation, false);
    Pair parts(p, aggregation, false);
    const Numbers zero(whole.model.copies[0].size(), 0.0);
    ASSERT_OK(whole.WriteInScope(AssignOp::kAssign, zero));
    ASSERT_OK(parts.WriteInScope(AssignOp::kAssign, zero));
    const std::vector<Numbers> first = p.OfEveryReplica(), second = p.OfEveryReplica();
    std::vector<Numbers> both;
    for (size_t r = 0; r < first.size(); ++r) both.push_back(SumOf({first[r], second[r]}));
    ASSERT_OK(whole.WriteInReplicas(AssignOp::kAdd, both));
    ASSERT_OK(parts.WriteInReplicas(AssignOp::kAdd, first));
    ASSERT_OK(parts.WriteInReplicas(AssignOp::kAdd, second));
    EXPECT_THAT(NumbersOf(parts.variable->Read().value()),
                Are(NumbersOf(whole.variable->Read().value())));
  });
}

// A step of one replica with the whole batch equals a step of several replicas with parts of it.
TEST(Generated, OneReplicaWithTheBatchEqualsSeveralWithParts) {
  OfAllPrograms(60, [](Program& p) {
    const int32_t rows = p.replicas * (1 + p.Below(3));
    const Numbers batch = p.AnyNumbers({rows});
    const auto trained = [&](Strategy& strategy, int32_t replicas) {
      const VariablePtr variable =
          VariableOf(strategy, Tensor::Zeros(DType::kFloat32, {}), VariableAggregation::kSum);
      const int32_t own = rows / replicas;
      EXPECT_OK(OnReplicas(strategy, [&] {
        const auto begin = batch.begin() + ReplicaId() * own;
        return variable->AssignAdd(Scalar(std::accumulate(begin, begin + own, 0.0)));
      }));
      return NumbersOf(variable->Read().value())[0];
    };
    OneDeviceStrategy one_device(ReplicaDevice(0));
    const double alone = trained(one_device, 1);
    EXPECT_EQ(trained(*Mirrored(1), 1), alone);
    EXPECT_EQ(trained(*p.strategy, p.replicas), alone);
  });
}

// A refused write changes nothing.
TEST(Generated, RefusedWritesLeaveEveryCopyAsItWas) {
  OfPrograms(60, [](Program& p) {
    Pair pair(p, VariableAggregation::kSum, p.Below(2) == 0);
    Shape other = p.shape;
    other.push_back(2);
    const DType dtype = p.dtype == DType::kFloat32 ? DType::kInt64 : DType::kFloat32;
    const Tensor wrong_shape = Tensor::Zeros(p.dtype, other);
    const Tensor wrong_type = Tensor::Zeros(dtype, p.shape);
    for (const Tensor& wrong : {wrong_shape, wrong_type}) {
      EXPECT_FALSE(OnReplicas(*p.strategy, [&] {
                     return pair.variable->AssignAdd(CopyTensor(wrong, CurrentDevice()).value());
                   }).ok());
      const Scope scope = p.strategy->EnterScope().value();
      EXPECT_FALSE(pair.variable->Assign(wrong).ok());
    }
    for (const VariablePtr& copy : pair.variable->components()) {
      EXPECT_THAT(NumbersOf(copy->Read().value()), Are(pair.model.copies[0]));
    }
  });
}

TEST(Generated, ScopesNestAndEndInOrder) {
  OfPrograms(40, [](Program& p) {
    std::vector<Scope> scopes;
    for (int i = 0; i < 10; ++i) {
      if (scopes.empty() || p.Below(2) == 0) {
        scopes.push_back(p.strategy->EnterScope().value());
      } else {
        ASSERT_OK(scopes.back().Exit());
        scopes.pop_back();
      }
      EXPECT_EQ(HasStrategy(), !scopes.empty());
      if (!scopes.empty()) {
        EXPECT_EQ(&GetStrategy(), p.strategy.get());
        EXPECT_TRUE(InCrossReplicaContext());
      }
    }
    while (!scopes.empty()) scopes.pop_back();
    EXPECT_FALSE(HasStrategy());
  });
}

}  // namespace
}  // namespace cairn::test
