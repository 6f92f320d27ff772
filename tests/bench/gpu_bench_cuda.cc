// The efficiency of steps on a GPU: embedding lookups and optimizers compared with copying memory,
// a layer's products with cuBLAS's own rate, and a whole step with the longest of its parts alone.
// Needs a GPU. Prints JSON lines; each compares its result with the CPU's in the same run.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/deadline.h"
#include "common/optimizer/optimizer.h"
#include "tests/worker/models/random_batch.h"
#include "worker/models/device_step.h"
#include "worker/models/model.h"
#include "worker/models/resident_variables.h"
#include "worker/ops/device_queue.h"
#include "worker/ops/loop_ops_cuda.h"

namespace cairn {
namespace {

constexpr int kRepeats = 20;
// --small: sizes with which the fake GPUs of the tests are done in seconds, and figures mean
// nothing.
bool is_small = false;

template <typename T>
T Size(T full) {
  return is_small ? std::max<T>(full >> 10, 64) : full;
}
int64_t Extent(int64_t full) { return is_small ? 64 : full; }

void Check(bool good, const std::string& what) {
  if (good) return;
  std::fprintf(stderr, "gpu_bench: %s\n", what.c_str());
  std::exit(1);
}

// Seconds for one call, in the fastest of several rounds of kRepeats calls.
double Seconds(DeviceQueue& queue, const std::function<void()>& call) {
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    const absl::Duration begin = MonotonicNow();
    for (int i = 0; i < kRepeats; ++i) call();
    Check(queue.Finish().ok(), "a step failed");
    best = std::min(best, absl::ToDoubleSeconds(MonotonicNow() - begin) / kRepeats);
  }
  return best;
}

class Floats {
 public:
  Floats(DeviceQueue& queue, size_t count)
      : queue_(queue),
        count_(count),
        data_(static_cast<float*>(queue.AllocateDevice(count * sizeof(float)).value())) {}
  ~Floats() { queue_.FreeDevice(data_); }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;

  float* get() const { return data_; }
  void Set(const void* from) {
    Check(cudaMemcpy(data_, from, count_ * sizeof(float), cudaMemcpyHostToDevice) == cudaSuccess,
          "copy in");
    // The copy may have returned when its source was staged; the queues' streams do not wait for
    // it.
    Check(cudaStreamSynchronize(nullptr) == cudaSuccess, "copy in");
  }
  std::vector<float> Get() const {
    std::vector<float> values(count_);
    Check(cudaMemcpy(values.data(), data_, count_ * sizeof(float), cudaMemcpyDeviceToHost) ==
              cudaSuccess,
          "copy out");
    return values;
  }

 private:
  DeviceQueue& queue_;
  const size_t count_;
  float* const data_;
};

std::vector<float> Normal(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

bool Near(absl::Span<const float> got, absl::Span<const float> want, float tolerance) {
  if (got.size() != want.size()) return false;
  for (size_t i = 0; i < want.size(); ++i) {
    if (!(std::abs(got[i] - want[i]) <= tolerance * (1 + std::abs(want[i])))) return false;
  }
  return true;
}

// The time to copy `count` floats within the GPU's memory, which reads and writes each float once.
double CopySeconds(const float* from, float* to, size_t count) {
  double best = 1e9;
  for (int i = 0; i < 10; ++i) {
    Check(cudaDeviceSynchronize() == cudaSuccess, "synchronize");
    const absl::Duration begin = MonotonicNow();
    for (int n = 0; n < kRepeats; ++n) {
      cudaMemcpyAsync(to, from, count * sizeof(float), cudaMemcpyDeviceToDevice, nullptr);
    }
    Check(cudaDeviceSynchronize() == cudaSuccess, "copy");
    best = std::min(best, absl::ToDoubleSeconds(MonotonicNow() - begin) / kRepeats);
  }
  return best;
}

// Gathers random rows of a table that exceeds the GPU's caches, compared with cudaMemcpy from
// device to device. Both read and write every byte once.
void Gather(DeviceQueue& queue) {
  const size_t table_rows = Size<size_t>(1 << 22), row_count = Size<size_t>(1 << 20);
  for (const size_t width : {size_t{16}, size_t{64}}) {
    Floats table(queue, table_rows * width), out(queue, row_count * width),
        positions(queue, row_count);
    const std::vector<float> values = Normal(table_rows * width, 1);
    table.Set(values.data());
    std::mt19937 random(2);
    std::vector<int32_t> rows(row_count);
    for (int32_t& row : rows) row = static_cast<int32_t>(random() % table_rows);
    positions.Set(rows.data());
    const auto* const at = reinterpret_cast<const int32_t*>(positions.get());
    const double gather = Seconds(queue, [&] {
      queue.ops().GatherRows(table.get(), width, at, row_count, out.get(), width);
    });
    std::vector<float> want(row_count * width);
    CpuOps().GatherRows(values.data(), width, rows.data(), row_count, want.data(), width);
    const bool verified = Near(out.Get(), want, 0);
    Floats copy(queue, row_count * width);
    const double copying = CopySeconds(out.get(), copy.get(), row_count * width);
    std::printf(
        "{\"bench\":\"gather %zu rows of %zu floats beside a device copy\",\"us\":%.1f,"
        "\"other_us\":%.1f,\"ratio\":%.3f,\"bar\":0.60,\"met\":%s,\"verified\":%s}\n",
        row_count, width, gather * 1e6, copying * 1e6, copying / gather,
        copying >= 0.6 * gather ? "true" : "false", verified ? "true" : "false");
  }
}

// An update of a whole variable, compared with a copy that moves as many bytes: the update reads
// the variable, its slots and the gradient, and writes all but the gradient.
void Update(DeviceQueue& queue, const std::string& type) {
  const size_t count = Size<size_t>(1 << 26);
  const auto optimizer = Optimizer::Create({.type = type}).value();
  const UpdateStep step = optimizer->Begin(0);
  const std::vector<float> gradient = Normal(count, 6);
  std::vector<std::vector<float>> want = {Normal(count, 7)};
  for (const SlotSpec& slot : optimizer->slots()) {
    want.emplace_back(count, static_cast<float>(slot.initial_value));
  }
  Floats device_gradient(queue, count);
  device_gradient.Set(gradient.data());
  std::vector<std::unique_ptr<Floats>> arrays;
  std::vector<void*> device_slots;
  std::vector<float*> slots;
  for (std::vector<float>& array : want) {
    arrays.push_back(std::make_unique<Floats>(queue, count));
    arrays.back()->Set(array.data());
    if (arrays.size() == 1) continue;
    device_slots.push_back(arrays.back()->get());
    slots.push_back(array.data());
  }
  const auto update = [&] {
    queue.ApplyOptimizer(*optimizer, step, DType::kFloat32,
                         {{arrays[0]->get(), device_slots.data(), device_gradient.get(), count}});
  };
  update();
  Check(queue.Finish().ok(), "an update failed");
  optimizer->Apply(step, want[0].data(), slots.data(), gradient.data(), count);
  bool verified = true;
  for (size_t a = 0; a < arrays.size(); ++a) {
    verified = verified && Near(arrays[a]->Get(), want[a], 1e-6f);
  }
  const double seconds = Seconds(queue, update);
  const size_t moved = (2 * arrays.size() + 1) * count;
  Floats from(queue, moved / 2), to(queue, moved / 2);
  const double copying = CopySeconds(from.get(), to.get(), moved / 2);
  std::printf(
      "{\"bench\":\"%s of %zu floats beside a device copy of as many bytes\",\"us\":%.1f,"
      "\"other_us\":%.1f,\"ratio\":%.3f,\"bar\":0.80,\"met\":%s,\"verified\":%s}\n",
      type.c_str(), count, seconds * 1e6, copying * 1e6, copying / seconds,
      copying >= 0.8 * seconds ? "true" : "false", verified ? "true" : "false");
}

// A layer's forward pass, compared with plain products of a size at which cuBLAS is fastest.
void Layer(DeviceQueue& queue) {
  const int64_t big = Extent(4096);
  const auto rate = [&](int64_t rows, int64_t inputs, int64_t outputs, bool* verified) {
    const std::vector<float> x = Normal(static_cast<size_t>(rows * inputs), 3);
    const std::vector<float> w = Normal(static_cast<size_t>(inputs * outputs), 4);
    const std::vector<float> b = Normal(static_cast<size_t>(outputs), 5);
    Floats dx(queue, x.size()), dw(queue, w.size()), db(queue, b.size());
    Floats y(queue, static_cast<size_t>(rows * outputs));
    dx.Set(x.data());
    dw.Set(w.data());
    db.Set(b.data());
    const DenseShape shape{rows, inputs, outputs, inputs};
    const double seconds = Seconds(queue, [&] {
      queue.ops().DenseForward(shape, dx.get(), dw.get(), db.get(), true, y.get());
    });
    // Verifies only the first rows.
    const DenseShape few{std::min<int64_t>(rows, 8), inputs, outputs, inputs};
    std::vector<float> want(static_cast<size_t>(few.rows * outputs));
    CpuOps().DenseForward(few, x.data(), w.data(), b.data(), true, want.data());
    std::vector<float> got = y.Get();
    got.resize(want.size());
    *verified = Near(got, want, 1e-3f);
    return 2.0 * static_cast<double>(rows * inputs * outputs) / seconds;
  };
  bool big_verified = false, verified = false;
  const double best = rate(big, big, big, &big_verified);
  const double layer = rate(2 * Extent(4096), Extent(1024), Extent(1024), &verified);
  std::printf(
      "{\"bench\":\"layer 8192 x 1024 -> 1024 with bias and relu beside 4096^3\","
      "\"tflops\":%.2f,\"other_tflops\":%.2f,\"ratio\":%.3f,\"verified\":%s}\n",
      layer / 1e12, best / 1e12, layer / best, verified && big_verified ? "true" : "false");
}

// The ops of a layer that move memory, each compared with a copy within the GPU of as many bytes.
// Nothing is verified here: the steps below do that.
void LayerOps(DeviceQueue& queue) {
  const auto rows = static_cast<size_t>(Extent(4096)), width = static_cast<size_t>(Extent(1024));
  Floats y(queue, rows * width), d_y(queue, rows * width), row(queue, width), column(queue, rows);
  const std::vector<float> values = Normal(rows * width, 10);
  for (Floats* floats : {&y, &d_y}) floats->Set(values.data());
  row.Set(values.data());
  column.Set(values.data());
  const DenseShape one_output{static_cast<int64_t>(rows), static_cast<int64_t>(width), 1,
                              static_cast<int64_t>(width)};
  Ops& ops = queue.ops();
  const struct {
    const char* name;
    size_t moved;  // arrays of rows * width floats that it reads or writes
    std::function<void()> call;
  } cases[] = {
      {"bias and relu", 2, [&] { ops.AddToRows(row.get(), rows, width, true, y.get()); }},
      {"gradient of bias and relu", 2,
       [&] { ops.BiasBackward(y.get(), rows, width, d_y.get(), row.get()); }},
      {"layer of one output", 1,
       [&] {
         ops.DenseForward(one_output, y.get(), row.get(), column.get(), false, column.get());
       }},
      {"gradient of a layer of one output", 2,
       [&] {
         ops.DenseBackward(one_output, y.get(), row.get(), column.get(), d_y.get(),
                           static_cast<int64_t>(width), row.get());
       }},
  };
  Floats from(queue, rows * width), to(queue, rows * width);
  for (const auto& c : cases) {
    const double seconds = Seconds(queue, c.call);
    const double copying = CopySeconds(from.get(), to.get(), c.moved * rows * width / 2);
    std::printf(
        "{\"bench\":\"%s of %zu x %zu floats beside a device copy of as many bytes\",\"us\":%.1f,"
        "\"other_us\":%.1f,\"ratio\":%.3f}\n",
        c.name, rows, width, seconds * 1e6, copying * 1e6, copying / seconds);
  }
}

// Products of lower precision, compared with float32.
void Precision(DeviceQueue& queue) {
  const int64_t big = Extent(4096);
  const auto count = static_cast<size_t>(big * big);
  const std::vector<float> x = Normal(count, 8), w = Normal(count, 9);
  Floats dx(queue, count), dw(queue, count), db(queue, static_cast<size_t>(big)), y(queue, count);
  dx.Set(x.data());
  dw.Set(w.data());
  const std::vector<float> bias(static_cast<size_t>(big));
  db.Set(bias.data());
  const DenseShape shape{big, big, big, big}, few{8, big, big, big};
  std::vector<float> want(static_cast<size_t>(few.rows * big));
  CpuOps().DenseForward(few, x.data(), w.data(), bias.data(), false, want.data());
  double seconds[3] = {};
  const char* const names[] = {"float32", "tf32", "bfloat16"};
  for (int p = 0; p < 3; ++p) {
    queue.SetMatmulPrecision(ParseMatmulPrecision(names[p]));
    seconds[p] = Seconds(queue, [&] {
      queue.ops().DenseForward(shape, dx.get(), dw.get(), db.get(), false, y.get());
    });
    std::vector<float> got = y.Get();
    got.resize(want.size());
    // Sums of `big` products of normal numbers are about sqrt(big).
    double error = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      error = std::max(error, std::abs(double{got[i]} - want[i]));
    }
    const double ratio = seconds[0] / seconds[p];
    std::printf(
        "{\"bench\":\"product %lld^3 in %s beside float32\",\"us\":%.1f,\"ratio\":%.2f,"
        "\"bar\":%.1f,\"met\":%s,\"verified\":%s}\n",
        static_cast<long long>(big), names[p], seconds[p] * 1e6, ratio, p == 0 ? 1.0 : 3.0,
        p == 0 || ratio >= 3 ? "true" : "false",
        error < 0.05 * std::sqrt(static_cast<double>(big)) ? "true" : "false");
  }
  queue.SetMatmulPrecision(MatmulPrecision::kFloat32);
}

// A whole step of dlrm and of an mlp on the GPU, compared with the CPU.
void Step(const std::string& type, const Schema& schema, int64_t rows) {
  ModelConfig config;
  config.type = type;
  config.hidden = {Extent(1024), Extent(1024)};
  const auto model = Model::Create(config, {}, schema).value();
  const Batch batch = test::RandomBatch(schema, rows, 1, 1);
  StepState on_gpu, on_cpu;
  on_gpu.device = std::make_shared<StepDevice>(OpenGpuQueue(Gpu(0)).value());
  double best[2] = {1e9, 1e9}, loss[2] = {0, 0};
  StepState* const states[2] = {&on_gpu, &on_cpu};
  for (int s = 0; s < 2; ++s) {
    Check(model->Plan(batch, states[s]).ok(), "plan");
    test::RandomValues(states[s], 0.05f, 1);
    loss[s] = model->Train(batch, states[s]).value();
    for (int round = 0; round < (s == 0 ? 10 : 2); ++round) {
      const int repeats = s == 0 ? kRepeats : 1;
      const absl::Duration begin = MonotonicNow();
      for (int i = 0; i < repeats; ++i) loss[s] = model->Train(batch, states[s]).value();
      best[s] = std::min(best[s], absl::ToDoubleSeconds(MonotonicNow() - begin) / repeats);
    }
  }
  bool verified = std::abs(loss[0] - loss[1]) < 1e-4 * (1 + std::abs(loss[1]));
  for (size_t v = 0; v < on_cpu.uses.size(); ++v) {
    verified = verified && Near(on_gpu.uses[v].gradient, on_cpu.uses[v].gradient, 1e-4f);
  }
  std::printf(
      "{\"bench\":\"%s step of %lld rows on gpu:0 beside one core\",\"us\":%.1f,"
      "\"other_us\":%.1f,\"ratio\":%.2f,\"verified\":%s}\n",
      type.c_str(), static_cast<long long>(rows), best[0] * 1e6, best[1] * 1e6, best[1] / best[0],
      verified ? "true" : "false");
}

// A training step of a model without tables whose variables and slots stay on the GPU: copies the
// batch in, computes the gradients and updates every variable. torch_steps.py has the same step.
void ResidentStep(const std::string& type, const Schema& schema, int64_t rows,
                  const std::string& optimizer_type) {
  ModelConfig config;
  config.type = type;
  config.hidden = {Extent(1024), Extent(1024)};
  const auto model = Model::Create(config, {}, schema).value();
  const Batch batch = test::RandomBatch(schema, rows, 1, 1);
  const std::shared_ptr<const Optimizer> optimizer =
      Optimizer::Create({.type = optimizer_type, .learning_rate = ConstantRate(1e-4)}).value();
  std::vector<ResidentVariables::Variable> variables;
  for (const VariableSpec& spec : model->variables()) {
    size_t floats = 1;
    for (const int64_t extent : spec.shape) floats *= static_cast<size_t>(extent);
    variables.push_back({.floats = floats, .optimizer = optimizer});
  }
  std::vector<std::unique_ptr<DeviceQueue>> queues;
  queues.push_back(OpenGpuQueue(Gpu(0)).value());
  const auto resident = ResidentVariables::Create(std::move(queues), std::move(variables)).value();
  for (size_t v = 0; v < resident->count(); ++v) {
    const std::vector<float> values = Normal(resident->floats(v), static_cast<uint32_t>(v));
    std::transform(values.begin(), values.end(), resident->host(v, 0).begin(),
                   [](float x) { return 0.05f * x; });
  }
  Check(resident->Send().ok(), "send");
  StepState state;
  state.device = std::make_shared<StepDevice>(OpenGpuQueue(Gpu(0)).value());
  state.resident = resident.get();
  const auto train = [&] {
    Check(model->Plan(batch, &state).ok(), "plan");
    const double loss = model->Train(batch, &state).value();
    resident->Update();
    return loss;
  };
  const double first_loss = train();
  double best = 1e9, loss = 0;
  for (int round = 0; round < 10; ++round) {
    const absl::Duration begin = MonotonicNow();
    for (int i = 0; i < kRepeats; ++i) loss = train();
    best = std::min(best, absl::ToDoubleSeconds(MonotonicNow() - begin) / kRepeats);
  }
  std::printf(
      "{\"bench\":\"%s training step of %lld rows with %s on gpu:0\",\"us\":%.1f,"
      "\"first_loss\":%.5f,\"loss\":%.5f,\"verified\":%s}\n",
      type.c_str(), static_cast<long long>(rows), optimizer_type.c_str(), best * 1e6, first_loss,
      loss, loss < first_loss ? "true" : "false");
}

// Ops that do nothing.
struct Nothing {
  template <typename Body>
  void ForEach(uint64_t, const Body&) {}
  void Zero(float*, size_t) {}
  void Multiply(int64_t, int64_t, int64_t, ColumnMajor, ColumnMajor, float*, int64_t) {}
  void MultiplyEach(const ProductBatch&, int64_t, int64_t, int64_t, ColumnMajor, ColumnMajor,
                    float*, int64_t) {}
};

// A queue that omits parts of a step, and records its copies so that they can be repeated alone.
class PartQueue final : public DeviceQueue {
 public:
  explicit PartQueue(std::unique_ptr<DeviceQueue> queue) : queue_(std::move(queue)) {}

  bool copies = true, computes = true;
  // Records the copies of one step, in their order.
  void Record() { recording_ = true; }
  void CopiesIn() {
    for (const Copy& copy : in_) queue_->CopyIn(copy.from, copy.to, copy.bytes);
  }
  void CopiesOut() {
    for (const Copy& copy : out_) queue_->CopyOut(copy.from, copy.to, copy.bytes);
  }

  Ops& ops() override { return computes ? queue_->ops() : no_ops_; }
  TensorOps& tensor_ops() override { return queue_->tensor_ops(); }
  absl::StatusOr<void*> AllocateDevice(size_t bytes) override {
    return queue_->AllocateDevice(bytes);
  }
  void FreeDevice(void* memory) override { queue_->FreeDevice(memory); }
  absl::StatusOr<void*> AllocateHost(size_t bytes) override { return queue_->AllocateHost(bytes); }
  void FreeHost(void* memory) override { queue_->FreeHost(memory); }
  int CopyIn(const void* host, void* device, size_t bytes) override {
    if (recording_) in_.push_back({host, device, bytes});
    return copies ? queue_->CopyIn(host, device, bytes) : 0;
  }
  void AwaitCopy(int copy) override {
    if (copies) queue_->AwaitCopy(copy);
  }
  void CopyOut(const void* device, void* host, size_t bytes) override {
    if (recording_) out_.push_back({device, host, bytes});
    if (copies) queue_->CopyOut(device, host, bytes);
  }
  void Reduce(DeviceRank& rank, absl::Span<const RankSum> sums) override {
    queue_->Reduce(rank, sums);
  }
  void CopyFrom(Device other, const void* from, void* to, size_t bytes) override {
    queue_->CopyFrom(other, from, to, bytes);
  }
  void ApplyOptimizer(const Optimizer& optimizer, const UpdateStep& step, DType dtype,
                      absl::Span<const VariableArrays> variables) override {
    queue_->ApplyOptimizer(optimizer, step, dtype, variables);
  }
  void FlagNotFinite(const float* x, size_t count, float* flag) override {
    queue_->FlagNotFinite(x, count, flag);
  }
  void ApplyOptimizerToRows(const Optimizer& optimizer, const UpdateStep& step, DType dtype,
                            const VariableArrays& variable, const int64_t* rows, size_t row_count,
                            size_t width) override {
    queue_->ApplyOptimizerToRows(optimizer, step, dtype, variable, rows, row_count, width);
  }
  void Fail(const absl::Status& why) override { queue_->Fail(why); }
  absl::Status Finish() override {
    recording_ = false;
    return queue_->Finish();
  }

 private:
  struct Copy {
    const void* from;
    void* to;
    size_t bytes;
  };

  const std::unique_ptr<DeviceQueue> queue_;
  Nothing nothing_;
  LoopOps<Nothing> no_ops_{nothing_};
  bool recording_ = false;
  std::vector<Copy> in_, out_;
};

// How well a step's parts overlap: the whole step compared with the longest of its parts. The
// parts, each measured alone, are the host's work (filling and emptying page-locked memory, calls),
// the copies in, the ops, and the copies out.
void Overlap(const std::string& type, const Schema& schema, int64_t rows) {
  ModelConfig config;
  config.type = type;
  config.hidden = {Extent(1024), Extent(1024)};
  const auto model = Model::Create(config, {}, schema).value();
  const Batch batch = test::RandomBatch(schema, rows, 1, 1);
  auto owned = std::make_unique<PartQueue>(OpenGpuQueue(Gpu(0)).value());
  PartQueue& queue = *owned;
  StepState state;
  state.device = std::make_shared<StepDevice>(std::move(owned));
  Check(model->Plan(batch, &state).ok(), "plan");
  test::RandomValues(&state, 0.05f, 1);
  double loss = 0;
  const auto train = [&] { loss = model->Train(batch, &state).value(); };
  train();
  queue.Record();
  train();
  const double first_loss = loss;
  const double whole = Seconds(queue, train);
  const bool verified = std::isfinite(loss) && std::abs(loss - first_loss) < 1e-4;
  const double in = Seconds(queue, [&] { queue.CopiesIn(); });
  const double out = Seconds(queue, [&] { queue.CopiesOut(); });
  queue.copies = false;
  const double host_and_ops = Seconds(queue, train);
  queue.computes = false;
  const double host = Seconds(queue, train);
  const double ops = host_and_ops - host;
  const double sum = host + in + ops + out;
  const double longest = std::max({host, in, ops, out});
  std::printf(
      "{\"bench\":\"%s step of %lld rows beside its parts alone\",\"us\":%.1f,\"host_us\":%.1f,"
      "\"in_us\":%.1f,\"ops_us\":%.1f,\"out_us\":%.1f,\"sum_us\":%.1f,\"longest_us\":%.1f,"
      "\"hideable_us\":%.1f,\"hidden_share\":%.3f,\"verified\":%s}\n",
      type.c_str(), static_cast<long long>(rows), whole * 1e6, host * 1e6, in * 1e6, ops * 1e6,
      out * 1e6, sum * 1e6, longest * 1e6, (sum - longest) * 1e6, (sum - whole) / (sum - longest),
      verified ? "true" : "false");
}

int Main() {
  absl::StatusOr<std::unique_ptr<DeviceQueue>> queue = OpenGpuQueue(Gpu(0));
  if (!queue.ok()) {
    std::fprintf(stderr, "gpu_bench: %s\n", std::string(queue.status().message()).c_str());
    return 1;
  }
  Gather(**queue);
  for (const char* type : {"sgd", "adagrad", "adam", "ftrl"}) Update(**queue, type);
  Layer(**queue);
  LayerOps(**queue);
  Precision(**queue);
  const int64_t rows = Extent(4096);
  Step("mlp", {.dense_columns = Extent(1024)}, rows);
  Step("dlrm", {.dense_columns = 13, .key_columns = 26}, rows);
  Step("wide_deep", {.dense_columns = 13, .key_columns = 26}, rows);
  for (const char* type : {"sgd", "adam"}) {
    ResidentStep("mlp", {.dense_columns = Extent(1024)}, rows, type);
  }
  Overlap("mlp", {.dense_columns = Extent(1024)}, rows);
  Overlap("dlrm", {.dense_columns = 13, .key_columns = 26}, rows);
  return 0;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  cairn::is_small = argc == 2 && std::string(argv[1]) == "--small";
  if (argc > 1 && !cairn::is_small) {
    std::fprintf(stderr, "usage: gpu_bench [--small]\n");
    return 2;
  }
  return cairn::Main();
}
