// Time of a training step of each model on one core, without servers: Plan, and Train compared with
// plain sgemm calls of the shapes that its layers need. Prints JSON lines. `gflops` is the rate of
// the layers' products over the whole time of Train; `of_sgemm` is the time of the plain products
// divided by Train's. `verified`: a small step against the gradient lowers the loss by its squared
// length, within 5 %.
#include <cblas.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "worker/models/model.h"

namespace cairn {
namespace {

constexpr double kMeasuredSeconds = 0.3;

// A product [m, k] x [k, n] as a layer computes it: forward, and both gradients.
struct Product {
  int64_t m, n, k;
};

struct Case {
  std::string name;
  ModelConfig config;
  Schema schema;
  int64_t entries_per_row = 0;  // for sparse input
  // The products of layers with these widths, first to last; the first layer has `input_gradient`
  // columns of input gradient.
  std::vector<int64_t> widths;
  int64_t input_gradient = 0;
};

ModelConfig Config(const std::string& type, std::vector<int64_t> hidden, int64_t factors) {
  ModelConfig config;
  config.type = type;
  config.hidden = std::move(hidden);
  config.factors = factors;
  return config;
}

std::vector<Case> Cases() {
  const Schema criteo{.dense_columns = 13, .key_columns = 26};
  ModelConfig digits = Config("mlp", {128}, 8);
  digits.classes = 10;
  return {
      {"linear, a9a", Config("linear", {}, 8), {.sparse_columns = 123}, 14, {}, 0},
      {"linear, 1 M columns", Config("linear", {}, 8), {.sparse_columns = 1000000}, 14, {}, 0},
      {"fm 8, a9a", Config("fm", {}, 8), {.sparse_columns = 123}, 14, {}, 0},
      {"mlp 123-128-1, a9a", Config("mlp", {128}, 8), {.sparse_columns = 123}, 14, {}, 0},
      {"mlp 784-128-10", digits, {.dense_columns = 784}, 0, {784, 128, 10}, 0},
      {"wide table, mlp 429-64-1", Config("mlp", {64}, 8), criteo, 0, {429, 64, 1}, 416},
      {"wide_deep, 64", Config("wide_deep", {64}, 8), criteo, 0, {429, 64, 1}, 416},
      {"dlrm, 64, 64", Config("dlrm", {}, 8), criteo, 0, {367, 64, 1}, 367},
      {"fm 8, criteo", Config("fm", {}, 8), criteo, 0, {}, 0},
      {"matrix_factorization 16",
       Config("matrix_factorization", {}, 16),
       {.key_columns = 2},
       0,
       {},
       0},
      {"skip_gram 100", Config("skip_gram", {}, 100), {.key_columns = 2}, 0, {}, 0},
  };
}

// Keys over a million with power-law frequencies (exponent 1.1).
int64_t ZipfKey(std::mt19937_64& random) {
  const double u = std::uniform_real_distribution<double>(1e-12, 1.0)(random);
  const auto rank = static_cast<uint64_t>(std::min(std::pow(u, -10.0), 1e12));
  return static_cast<int64_t>(rank * 2654435761 % 1000000);
}

Batch MakeBatch(const Case& c, int64_t rows, uint64_t seed) {
  std::mt19937_64 random(seed);
  Batch batch{.rows = rows};
  const uint64_t labels = c.config.classes > 1 ? static_cast<uint64_t>(c.config.classes) : 2;
  for (int64_t r = 0; r < rows; ++r) batch.labels.push_back(static_cast<float>(random() % labels));
  if (c.schema.sparse_columns > 0) batch.row_offsets = {0};
  for (int64_t r = 0; r < rows && c.schema.sparse_columns > 0; ++r) {
    const int64_t group = c.schema.sparse_columns / c.entries_per_row;
    for (int64_t i = 0; i < c.entries_per_row; ++i) {
      const auto within = static_cast<int64_t>(random() % static_cast<uint64_t>(group));
      batch.columns.push_back(static_cast<int32_t>(i * group + within));
      batch.values.push_back(1.0f);
    }
    batch.row_offsets.push_back(static_cast<int64_t>(batch.columns.size()));
  }
  std::uniform_real_distribution<float> uniform(0.0f, 1.0f);
  for (int64_t i = 0; i < rows * c.schema.dense_columns; ++i) {
    batch.dense.push_back(uniform(random));
  }
  for (int64_t i = 0; i < rows * c.schema.key_columns; ++i) batch.keys.push_back(ZipfKey(random));
  return batch;
}

// This thread's processor time, which other processes do not affect.
double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Seconds for one call: the fastest of many.
template <typename Call>
double Seconds(const Call& call) {
  double best = 1e9;
  const double end = ThreadSeconds() + kMeasuredSeconds;
  for (double start = ThreadSeconds(); start < end;) {
    call();
    const double now = ThreadSeconds();
    best = std::min(best, now - start);
    start = now;
  }
  return best;
}

std::vector<Product> Products(const Case& c, int64_t rows) {
  std::vector<Product> products;
  for (size_t i = 0; i + 1 < c.widths.size(); ++i) {
    const int64_t in = c.widths[i], out = c.widths[i + 1];
    products.push_back({rows, out, in});
    products.push_back({in, out, rows});
    const int64_t gradient = i == 0 ? c.input_gradient : in;
    if (gradient > 0) products.push_back({rows, gradient, out});
  }
  return products;
}

double SgemmSeconds(const std::vector<Product>& products) {
  size_t largest = 0;
  for (const Product& p : products) {
    largest = std::max(largest, static_cast<size_t>(std::max({p.m * p.k, p.k * p.n, p.m * p.n})));
  }
  const std::vector<float> a(largest, 0.5f), b(largest, 0.25f);
  std::vector<float> out(largest);
  return Seconds([&] {
    for (const Product& p : products) {
      const int m = static_cast<int>(p.m), n = static_cast<int>(p.n), k = static_cast<int>(p.k);
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1.0f, a.data(), k, b.data(),
                  n, 0.0f, out.data(), n);
    }
  });
}

bool Verify(const Model& model, const Batch& batch, StepState* state) {
  const double before = model.Train(batch, state).value();
  double squares = 0;
  for (const VariableUse& use : state->uses) {
    for (const float g : use.gradient) squares += static_cast<double>(g) * g;
  }
  const double step = 1e-3 / std::sqrt(squares);
  for (VariableUse& use : state->uses) {
    for (size_t i = 0; i < use.values.size(); ++i) {
      use.values[i] -= static_cast<float>(step * use.gradient[i]);
    }
  }
  const double lowered = before - model.Train(batch, state).value();
  return std::abs(lowered - step * squares) < 0.05 * step * squares;
}

bool Measure(const Case& c, int64_t rows) {
  const auto model = Model::Create(c.config, {}, c.schema).value();
  std::vector<Batch> batches;
  for (uint64_t seed = 1; seed <= 4; ++seed) batches.push_back(MakeBatch(c, rows, seed));
  StepState state;
  size_t turn = 0;
  const double plan = Seconds([&] {
    if (!model->Plan(batches[++turn % batches.size()], &state).ok()) std::abort();
  });
  if (!model->Plan(batches[0], &state).ok()) std::abort();
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  for (VariableUse& use : state.uses) {
    for (float& value : use.values) value = normal(random);
  }
  const bool verified = Verify(*model, batches[0], &state);
  const double train = Seconds([&] { model->Train(batches[0], &state).value(); });
  const std::vector<Product> products = Products(c, rows);
  double flops = 0;
  for (const Product& p : products) flops += 2.0 * static_cast<double>(p.m * p.n * p.k);
  std::printf(
      "{\"bench\":\"model step\",\"model\":\"%s\",\"batch\":%d,\"plan_us\":%.1f,"
      "\"train_us\":%.1f,\"us_per_example\":%.3f",
      c.name.c_str(), static_cast<int>(rows), plan * 1e6, train * 1e6,
      (plan + train) * 1e6 / static_cast<double>(rows));
  if (!products.empty()) {
    const double sgemm = SgemmSeconds(products);
    std::printf(",\"gflops\":%.1f,\"sgemm_gflops\":%.1f,\"of_sgemm\":%.2f", flops / train / 1e9,
                flops / sgemm / 1e9, sgemm / train);
  }
  std::printf(",\"verified\":%s}\n", verified ? "true" : "false");
  std::fflush(stdout);
  return verified;
}

}  // namespace
}  // namespace cairn

int main() {
  openblas_set_num_threads(1);
  bool verified = true;
  for (const cairn::Case& c : cairn::Cases()) {
    for (const int64_t rows : {128, 1024}) verified = cairn::Measure(c, rows) && verified;
  }
  return verified ? 0 : 1;
}
