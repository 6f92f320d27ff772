#include "tests/fuzz/values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/hash.h"
#include "thrift/limits.h"

namespace cairn::fuzz {
namespace {

constexpr double kHuge = std::numeric_limits<double>::max();
constexpr double kTiny = std::numeric_limits<double>::denorm_min();
constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct ArgumentValues {
  const char* name;
  std::vector<double> values;
};

const std::vector<double> kFlags = {0, 1};
const std::vector<double> kShares = {0.5, 0, 1, 0.9, kTiny, 1 - 1e-16};
const std::vector<double> kSharesBelowOne = {0.5, 0, 0.9, kTiny, 1 - 1e-16};
const std::vector<double> kSharesAboveZero = {0.5, 1, kTiny, 0.9};
const std::vector<double> kAmounts = {0, 1, 1e-7, 1e30, kHuge, kTiny};

// The arguments of each optimizer, within their ranges.
const std::map<std::string, std::vector<ArgumentValues>>& OptimizerArguments() {
  static const auto* const arguments = new std::map<std::string, std::vector<ArgumentValues>>{
      {"sgd", {{"momentum", kShares}, {"nesterov", kFlags}, {"weight_decay", kAmounts}}},
      {"adagrad",
       {{"initial_accumulator_value", kAmounts},
        {"epsilon", kAmounts},
        {"weight_decay", kAmounts}}},
      {"adadelta", {{"rho", kShares}, {"epsilon", kAmounts}, {"weight_decay", kAmounts}}},
      {"rmsprop",
       {{"rho", kShares},
        {"momentum", kShares},
        {"epsilon", kAmounts},
        {"centered", kFlags},
        {"weight_decay", kAmounts}}},
      {"adam",
       {{"beta_1", kSharesBelowOne},
        {"beta_2", kSharesBelowOne},
        {"epsilon", kAmounts},
        {"amsgrad", kFlags},
        {"weight_decay", kAmounts}}},
      {"adamw",
       {{"beta_1", kSharesBelowOne},
        {"beta_2", kSharesBelowOne},
        {"epsilon", kAmounts},
        {"amsgrad", kFlags},
        {"weight_decay", kAmounts}}},
      {"adamax",
       {{"beta_1", kSharesBelowOne},
        {"beta_2", kShares},
        {"epsilon", kAmounts},
        {"weight_decay", kAmounts}}},
      {"nadam", {{"beta_1", kSharesBelowOne}, {"beta_2", kSharesBelowOne}, {"epsilon", kAmounts}}},
      {"lazy_adam",
       {{"beta_1", kSharesBelowOne}, {"beta_2", kSharesBelowOne}, {"epsilon", kAmounts}}},
      {"ftrl",
       {{"learning_rate_power", {-0.5, 0, -1, -kTiny, -kHuge}},
        {"initial_accumulator_value", kAmounts},
        {"l1_regularization_strength", kAmounts},
        {"l2_regularization_strength", kAmounts},
        {"l2_shrinkage_regularization_strength", kAmounts},
        {"beta", kAmounts}}},
      {"lion", {{"beta_1", kSharesAboveZero}, {"beta_2", kShares}, {"weight_decay", kAmounts}}},
      {"none", {}}};
  return *arguments;
}

const std::vector<std::string>& OptimizerTypes() {
  static const auto* const types =
      new std::vector<std::string>{"sgd",   "none",  "adam",      "adagrad", "adadelta", "rmsprop",
                                   "adamw", "nadam", "lazy_adam", "adamax",  "ftrl",     "lion"};
  return *types;
}

wire::Schedule AnySchedule(Choices& choices) {
  wire::Schedule schedule;
  const std::vector<double> rates = {1, 0.5, 0, 2, 1e30, kHuge, kTiny};
  const std::vector<double> periods = {10, 1, 0.5, kHuge, kTiny};
  const auto set = [&](const char* name, const std::vector<double>& values) {
    schedule.arguments[name] = choices.Of(values);
  };
  switch (choices.Weighted({12, 1, 1, 1, 1, 1, 1, 1})) {
    case 0: schedule.arguments["learning_rate"] = choices.Of({1.0, 0.5, 0.25, 2.0, 0.0}); break;
    case 1:
      schedule.type = "exponential_decay";
      set("initial_learning_rate", rates);
      set("decay_steps", periods);
      set("decay_rate", kAmounts);
      set("staircase", kFlags);
      break;
    case 2:
      schedule.type = "inverse_time_decay";
      set("initial_learning_rate", rates);
      set("decay_steps", periods);
      set("decay_rate", kAmounts);
      break;
    case 3:
      schedule.type = "polynomial_decay";
      set("initial_learning_rate", rates);
      set("decay_steps", periods);
      set("power", kAmounts);
      set("cycle", kFlags);
      break;
    case 4:
      schedule.type = "piecewise_constant_decay";
      schedule.boundaries = {1, 2, kHuge};
      schedule.values = {1, 0, 0.5, choices.Of(rates)};
      break;
    case 5:
      schedule.type = "cosine_decay";
      set("initial_learning_rate", rates);
      set("decay_steps", periods);
      if (choices.OneIn(2)) {
        set("warmup_target", rates);
        set("warmup_steps", kAmounts);
      }
      break;
    case 6:
      schedule.type = "cosine_decay_restarts";
      set("initial_learning_rate", rates);
      set("first_decay_steps", periods);
      set("t_mul", {2, 1, 1 + 1e-15, kHuge});
      set("m_mul", kAmounts);
      break;
    default: schedule.arguments["learning_rate"] = AnyDouble(choices); break;
  }
  return schedule;
}

wire::Optimizer AnyOptimizer(Choices& choices) {
  wire::Optimizer optimizer;
  optimizer.type = OptimizerTypes()[choices.Weighted({10, 2, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1})];
  if (optimizer.type != "none") optimizer.learning_rate = AnySchedule(choices);
  if (choices.OneIn(3)) {
    for (const ArgumentValues& argument : OptimizerArguments().at(optimizer.type)) {
      if (choices.OneIn(2)) optimizer.arguments[argument.name] = choices.Of(argument.values);
    }
  }
  if (choices.OneIn(12)) {
    const double limit = choices.Of({1.0, 0.001, kHuge, kTiny});
    switch (choices.Below(3)) {
      case 0: optimizer.clipvalue = limit; break;
      case 1: optimizer.clipnorm = limit; break;
      default: optimizer.global_clipnorm = limit; break;
    }
  }
  if (choices.OneIn(40)) optimizer.arguments["momentum"] = AnyDouble(choices);
  if (choices.OneIn(100)) optimizer.type = choices.Of({"", "SGD", "adam "});
  return optimizer;
}

wire::Initializer AnyInitializer(Choices& choices) {
  wire::Initializer initializer;
  initializer.type =
      choices.Of({"zeros", "ones", "uniform", "constant", "normal", "glorot_uniform", "wave"});
  if (initializer.type == "constant") {
    initializer.arguments["value"] = choices.Of({3.0, -1.0, 1e30, kHuge, kTiny, 3e38});
  }
  if (initializer.type == "uniform" && choices.OneIn(2)) {
    initializer.arguments["minval"] = choices.Of({-1.0, 0.0, -kHuge});
    initializer.arguments["maxval"] = choices.Of({1.0, 0.0, kHuge});
  }
  if (choices.OneIn(4)) initializer.seed = AnyInt64(choices);
  if (choices.OneIn(60)) initializer.arguments["stddev"] = AnyDouble(choices);
  return initializer;
}

std::vector<int64_t> AnyShape(Choices& choices) {
  static const auto* const shapes = new std::vector<std::vector<int64_t>>{
      {2},     {3, 2},  {},      {1},       {3},          {5, 2},
      {0},     {3, 0},  {0, 3},  {4, 8},    {2, 2, 2},    {1, 1},
      {7},     {4, 33}, {2, 64}, {3, 0, 7}, {1, 9},       {6, 1},
      {17, 3}, {40},    {3, 40}, {9, 2, 2}, {2, 0, 0, 5}, std::vector<int64_t>(32, 1)};
  static const auto* const extremes =
      new std::vector<std::vector<int64_t>>{{70000},
                                            {3, 30000},
                                            {-1},
                                            {kMost64},
                                            {kLeast64},
                                            {int64_t{1} << 53},
                                            {int64_t{1} << 31, int64_t{1} << 31},
                                            {0, int64_t{1} << 60, int64_t{1} << 60},
                                            {int64_t{1} << 60, int64_t{1} << 60, 0},
                                            {int64_t{1} << 20, 0},
                                            std::vector<int64_t>(33, 1)};
  return choices.OneIn(60) ? choices.Of(*extremes) : choices.Of(*shapes);
}

void AddShards(Choices& choices, wire::VariableSpec& spec) {
  const int64_t rows = spec.shape.empty() ? 1 : spec.shape[0];
  const auto add = [&](int64_t first, int64_t count, int32_t ps) {
    wire::DenseShard shard;
    shard.first_row = first;
    shard.rows = count;
    shard.ps = ps;
    spec.shards.push_back(shard);
  };
  switch (choices.Weighted({6, 2, 2, 1, 1, 1})) {
    case 0: break;
    case 1: add(0, rows, 0); break;
    case 2:
      add(0, rows / 2, 0);
      add(rows / 2, rows - rows / 2, 0);
      break;
    case 3:
      add(0, 0, 0);
      add(0, rows, 0);
      add(rows, 0, 0);
      break;
    case 4:
      add(0, rows / 2, 0);
      add(rows / 2, rows - rows / 2, 1);
      break;
    default:
      if (choices.OneIn(5)) add(AnyInt64(choices), AnyInt64(choices), AnyInt32(choices));
      break;
  }
}

void FillEmbedding(Choices& choices, wire::VariableSpec& spec) {
  spec.kind = wire::VariableKind::EMBEDDING;
  spec.shape = {choices.Of<int64_t>({2, 1, 3, 8, 16, 33, 64})};
  if (spec.initializer.type == "wave" && !choices.OneIn(20)) spec.initializer.type = "normal";
  if (choices.OneIn(2)) spec.__set_touched_rows(wire::TouchedRows::PUSHED);
  switch (choices.Weighted({6, 4, 4, 2, 1})) {
    case 0: break;
    case 1: spec.bucket_ps = {0}; break;
    case 2: spec.bucket_ps.assign(4, 0); break;
    case 3: spec.bucket_ps = {0, 0, 1, 0}; break;
    default: spec.bucket_ps.assign(choices.Of({2u, 128u, 3u, 0u}), 0); break;
  }
  const auto buckets = static_cast<int64_t>(spec.bucket_ps.empty() ? 16 : spec.bucket_ps.size());
  if (choices.OneIn(3)) {
    wire::RowRules rules;
    rules.admit_after_pushes = choices.Of({1, 2, 3, 255, 0, 256});
    rules.expire_after_seconds =
        choices.Of<int64_t>({0, 100, 1, 16, kMostSecondsToExpire, kMostSecondsToExpire + 1, -1});
    rules.max_rows =
        choices.Of<int64_t>({0, buckets, 4 * buckets, 17 * buckets, kMost64, buckets - 1, -1});
    spec.__set_row_rules(rules);
  }
  if (choices.OneIn(4)) {
    wire::RowStorage storage;
    storage.values = static_cast<wire::RowFormat::type>(choices.Of({0, 1, 2, 3, 4, -1}));
    storage.slots = static_cast<wire::RowFormat::type>(choices.Of({0, 1, 2, 3}));
    spec.__set_row_storage(storage);
  }
}

double Number(uint32_t style, uint64_t i) {
  const auto step = static_cast<double>(i % 17);
  switch (style) {
    case 0: return 1;
    case 1: return step - 8;
    case 2: return 0;
    case 3: return 0.25 * step;
    case 4: return i % 2 == 0 ? 3e38 : -3e38;
    case 5: return i % 2 == 0 ? 1e-45 : -1e-40;
    case 6: return static_cast<double>(static_cast<int64_t>(MixBits(i)) >> 40) / 1024;
    default: return -0.0;
  }
}

template <typename T>
void Append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void AppendAs(DType dtype, double number, std::string& bytes) {
  const auto limited = static_cast<float>(std::clamp(number, -3e38, 3e38));
  const float narrow = std::isfinite(number) ? limited : static_cast<float>(number);
  switch (dtype) {
    case DType::kFloat32: Append(bytes, narrow); break;
    case DType::kFloat64: Append(bytes, number); break;
    case DType::kFloat16: {
      const float bounded = std::isfinite(narrow) ? std::clamp(narrow, -65000.f, 65000.f) : narrow;
      Append(bytes, Float16FromFloat(bounded));
      break;
    }
    case DType::kBFloat16: Append(bytes, BFloat16FromFloat(narrow)); break;
    case DType::kInt32:
      Append(bytes, static_cast<int32_t>(std::clamp(limited, -2e9f, 2e9f)));
      break;
    case DType::kInt64:
      Append(bytes, static_cast<int64_t>(std::clamp(limited, -9e18f, 9e18f)));
      break;
  }
}

}  // namespace

int64_t AnyInt64(Choices& choices) {
  return choices.Of<int64_t>({0, 1, -1, 2, kMost64, kLeast64, kMost64 - 1, kMost32, kLeast32,
                              int64_t{kMost32} + 1, int64_t{1} << 53, int64_t{1} << 62, 65535,
                              65536, 65537, 255, 256, 1000});
}

int32_t AnyInt32(Choices& choices) {
  return choices.Of(
      {0, 1, -1, 2, kMost32, kLeast32, kMost32 - 1, 16, 1023, 1024, 65535, 65536, 65537});
}

double AnyDouble(Choices& choices) {
  return choices.Of(
      {0.0, 1.0, -1.0, 0.5, kHuge, -kHuge, kTiny, kInfinite, -kInfinite, kNan, 60.0, 61.0, 1e-9});
}

std::string AnyBytes(Choices& choices, size_t limit) {
  const std::vector<size_t> lengths = {0, 1, 12, limit, limit + 1};
  const size_t length = lengths[choices.Weighted({4, 4, 2, 2, 1})];
  return std::string(length, static_cast<char>(choices.Of({97, 0, 255, 10, 27})));
}

std::string AnyVariableName(Choices& choices) {
  switch (choices.Weighted({8, 6, 4, 2, 1})) {
    case 0: return "a";
    case 1: return "b";
    case 2: return "c/kernel";
    case 3: return std::string(kMaxVariableNameBytes, 'n');
    default: return choices.Of({".", "A-0_", "..", "a/", "", "no spaces", "nul\n"});
  }
}

wire::VariableSpec AnySpec(Choices& choices, const std::string& name) {
  wire::VariableSpec spec;
  spec.name = name;
  const bool embedding = choices.Weighted({3, 2}) == 1;
  spec.optimizer = AnyOptimizer(choices);
  spec.initializer = AnyInitializer(choices);
  if (embedding) {
    FillEmbedding(choices, spec);
  } else {
    spec.shape = AnyShape(choices);
    spec.dtype = static_cast<wire::DType::type>(1 + choices.Weighted({6, 3, 1, 1, 1, 1}));
    if (spec.dtype >= wire::DType::INT32) spec.optimizer = {}, spec.optimizer.type = "none";
    if (choices.OneIn(2)) spec.__set_touched_rows(wire::TouchedRows::PUSHED);
    AddShards(choices, spec);
  }
  if (choices.OneIn(30)) spec.map_version = AnyInt64(choices);
  if (choices.OneIn(100)) spec.kind = static_cast<wire::VariableKind::type>(AnyInt32(choices));
  if (choices.OneIn(100)) spec.dtype = static_cast<wire::DType::type>(AnyInt32(choices));
  if (choices.OneIn(100)) {
    spec.__set_touched_rows(static_cast<wire::TouchedRows::type>(AnyInt32(choices)));
  }
  if (choices.OneIn(100)) spec.bucket_ps.push_back(AnyInt32(choices));
  return spec;
}

std::string Numbers(Choices& choices, DType dtype, size_t count, NumberStyle style) {
  const uint32_t any = static_cast<uint32_t>(choices.Weighted({8, 4, 1, 4, 1, 1, 2, 1}));
  const uint32_t from = style == NumberStyle::kNice ? any % 4 : any;
  const uint64_t first = choices.Below(17);
  std::string bytes;
  bytes.reserve(count * DTypeBytes(dtype));
  for (size_t i = 0; i < count; ++i) AppendAs(dtype, Number(from, first + i), bytes);
  if (style == NumberStyle::kNotFinite && count > 0 && IsFloating(dtype)) {
    const size_t at = choices.Below(count) * DTypeBytes(dtype);
    std::string odd;
    AppendAs(dtype, choices.Of({kNan, kInfinite, -kInfinite}), odd);
    bytes.replace(at, odd.size(), odd);
  }
  return bytes;
}

std::vector<int64_t> RowIds(Choices& choices, int64_t first, int64_t rows, bool repeats) {
  std::vector<int64_t> ids;
  if (rows <= 0) return ids;
  const size_t count = choices.Of<size_t>({1, 2, 0, 3, 5, 9, 40});
  std::set<int64_t> seen;
  for (size_t i = 0; i < count; ++i) {
    const auto range = static_cast<size_t>(std::min<int64_t>(rows, 1 << 20));
    const int64_t id = choices.OneIn(4) ? first + rows - 1 : first + choices.Below(range);
    if (!repeats && !seen.insert(id).second) continue;
    ids.push_back(id);
  }
  return ids;
}

std::vector<int64_t> Keys(Choices& choices, bool repeats) {
  std::vector<int64_t> ids;
  const size_t count = choices.Of<size_t>({1, 2, 0, 3, 5, 9, 40, 300});
  std::set<int64_t> seen;
  for (size_t i = 0; i < count; ++i) {
    const int64_t key = choices.OneIn(12) ? AnyInt64(choices)
                        : count > 9       ? static_cast<int64_t>(choices.Below(400))
                                          : static_cast<int64_t>(choices.Below(12));
    if (!repeats && !seen.insert(key).second) continue;
    ids.push_back(key);
  }
  return ids;
}

wire::WorkerVitals AnyVitals(Choices& choices) {
  wire::WorkerVitals vitals;
  if (choices.OneIn(2)) vitals.__set_task(AnyBytes(choices, kMaxTaskTypeBytes));
  if (choices.OneIn(2)) vitals.__set_steps(AnyInt64(choices));
  if (choices.OneIn(2)) vitals.__set_loss(AnyDouble(choices));
  if (choices.OneIn(2)) vitals.__set_staleness_mean(AnyDouble(choices));
  if (choices.OneIn(2)) vitals.__set_retained_bytes(AnyInt64(choices));
  if (choices.OneIn(3)) {
    vitals.__set_servers_gone(
        std::vector<int32_t>(choices.Of<size_t>({1, kMaxGoneServers}), AnyInt32(choices)));
  }
  if (choices.OneIn(3)) {
    vitals.__set_servers_replaced(
        std::vector<int32_t>(choices.Of<size_t>({1, kMaxGoneServers}), AnyInt32(choices)));
  }
  if (choices.OneIn(4)) vitals.__set_share_done(AnyDouble(choices));
  if (choices.OneIn(4)) vitals.__set_seconds_left(AnyDouble(choices));
  return vitals;
}

}  // namespace cairn::fuzz
