// Models with matching data, for tests of code that runs models.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/models/model.h"

namespace cairn::test {

struct ModelScene {
  std::string name;
  ModelConfig model;
  DataConfig data;
  Schema schema;

  std::unique_ptr<Model> MakeModel() const { return Model::Create(model, data, schema).value(); }
};

// `type` over rows of libsvm.
inline ModelScene SparseScene(const std::string& type, int64_t columns) {
  return {.name = absl::StrCat(type, " over ", columns, " sparse columns"),
          .model = {.type = type, .loss = "sigmoid_cross_entropy", .hidden = {8}},
          .data = {.format = "libsvm", .features = columns},
          .schema = {.sparse_columns = columns}};
}

// Counts and tokens like Criteo's.
inline ModelScene WideDeepScene() {
  return {.name = "wide_deep",
          .model = {.type = "wide_deep", .loss = "sigmoid_cross_entropy", .hidden = {8}},
          .data = {.format = "criteo_tsv"},
          .schema = {.dense_columns = 13, .key_columns = 26}};
}

// Variables used whole, by rows and by keys.
inline std::vector<ModelScene> ModelScenes() {
  return {SparseScene("linear", 12), SparseScene("linear", 100000), SparseScene("fm", 100000),
          SparseScene("mlp", 20), WideDeepScene()};
}

}  // namespace cairn::test
