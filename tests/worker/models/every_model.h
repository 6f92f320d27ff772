// Every model on every kind of data that it accepts, in small sizes.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "worker/models/model.h"

namespace cairn::test {

struct ModelCase {
  std::string name;
  ModelConfig config;
  Schema schema;
  float stddev = 0.4f;  // of the values
};

inline ModelConfig SmallConfig(const std::string& type) {
  ModelConfig config;
  config.type = type;
  config.hidden = {6, 5};
  config.bottom_hidden = {5};
  config.top_hidden = {6};
  config.factors = 5;
  config.embedding.dim = 4;
  return config;
}

inline ModelConfig With(ModelConfig config, const std::string& loss, int64_t classes = 1) {
  config.loss = loss;
  config.classes = classes;
  return config;
}

inline ModelConfig OneVocabulary(ModelConfig config) {
  config.tables = "shared_vocabulary";
  return config;
}

// An mlp with so many weights that a device copies them, their gradients and, from 41 rows on, the
// input directly from and to page-locked vectors.
inline ModelCase LargeModel() {
  ModelConfig config = With(SmallConfig("mlp"), "sigmoid_cross_entropy");
  config.hidden = {1312, 20};
  return {"mlp_large", config, {.dense_columns = 400}, 0.05f};
}

inline std::vector<ModelCase> EveryModel() {
  const Schema sparse{.sparse_columns = 20}, dense{.dense_columns = 7};
  const Schema wide_sparse{.sparse_columns = 50000};
  const Schema keys{.key_columns = 3}, criteo{.dense_columns = 4, .key_columns = 3};
  const Schema shared{.dense_columns = 4, .key_columns = 3, .keys_name_columns = true};
  const Schema pairs{.key_columns = 2};
  const std::string sigmoid = "sigmoid_cross_entropy", softmax = "softmax_cross_entropy";
  const std::string squared = "mean_squared_error";
  ModelConfig hashed = With(SmallConfig("mlp"), sigmoid);
  hashed.embedding.hash_buckets = 3;
  return {
      {"linear_sparse", With(SmallConfig("linear"), sigmoid), sparse},
      {"linear_sparse_rows", With(SmallConfig("linear"), softmax, 3), wide_sparse},
      {"linear_sparse_softmax", With(SmallConfig("linear"), softmax, 3), sparse},
      {"linear_dense", With(SmallConfig("linear"), squared), dense},
      {"linear_dense_softmax", With(SmallConfig("linear"), softmax, 3), dense},
      {"mlp_dense", With(SmallConfig("mlp"), softmax, 4), dense},
      {"mlp_sparse", With(SmallConfig("mlp"), sigmoid), sparse},
      {"mlp_sparse_rows", With(SmallConfig("mlp"), sigmoid), wide_sparse},
      {"mlp_keys", With(SmallConfig("mlp"), sigmoid), keys},
      {"mlp_keys_and_dense", With(SmallConfig("mlp"), softmax, 3), criteo},
      {"mlp_hashed", hashed, criteo},
      {"fm_sparse", With(SmallConfig("fm"), sigmoid), sparse},
      {"fm_sparse_rows", With(SmallConfig("fm"), sigmoid), wide_sparse},
      {"fm_dense", With(SmallConfig("fm"), squared), dense},
      {"fm_keys", With(SmallConfig("fm"), sigmoid), keys},
      {"fm_keys_and_dense", With(SmallConfig("fm"), sigmoid), criteo},
      {"wide_deep", With(SmallConfig("wide_deep"), sigmoid), criteo},
      {"wide_deep_keys", With(SmallConfig("wide_deep"), squared), keys},
      {"dlrm", With(SmallConfig("dlrm"), sigmoid), criteo},
      {"fm_shared", With(SmallConfig("fm"), sigmoid), shared},
      {"wide_deep_shared", With(SmallConfig("wide_deep"), sigmoid), shared},
      {"dlrm_shared", With(SmallConfig("dlrm"), sigmoid), shared},
      {"fm_vocabulary", OneVocabulary(With(SmallConfig("fm"), sigmoid)), criteo},
      {"mlp_vocabulary", OneVocabulary(hashed), criteo},
      {"wide_deep_vocabulary", OneVocabulary(With(SmallConfig("wide_deep"), sigmoid)), criteo},
      {"dlrm_vocabulary", OneVocabulary(With(SmallConfig("dlrm"), sigmoid)), criteo},
      {"matrix_factorization", With(SmallConfig("matrix_factorization"), squared), pairs},
      {"skip_gram", With(SmallConfig("skip_gram"), sigmoid), pairs},
  };
}

inline void PrintTo(const ModelCase& c, std::ostream* out) { *out << c.name; }

}  // namespace cairn::test
