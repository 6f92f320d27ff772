// Section `model`.
#include "common/config/job_sections.h"
#include "common/config/section_reader.h"
#include "common/errors.h"
#include "common/status.h"
#include "common/variables/variable_spec.h"

namespace cairn {
namespace {

constexpr int64_t kMaxWidth = int64_t{1} << 20;        // of a layer or a row, or factors
constexpr int64_t kMaxHashBuckets = int64_t{1} << 40;  // keys have 64 bits; more is a typing error
constexpr int64_t kMaxNegatives = 1000;

absl::Status ReadInit(const ConfigNode& value, const std::string& path, ModelConfig* model) {
  RETURN_IF_ERROR(ReadInitializer(value, path, /*is_embedding=*/false, &model->init));
  model->init_given = true;
  return absl::OkStatus();
}

absl::Status ReadEmbedding(const ConfigNode& value, const std::string& path, ModelConfig* model) {
  EmbeddingConfig& embedding = model->embedding;
  std::string vocabulary;
  RETURN_IF_ERROR(ReadSection(
      value, path,
      {Integer("dim", &embedding.dim, 1, kMaxWidth), Choice("vocabulary", &vocabulary, {"dynamic"}),
       Integer("hash_buckets", &embedding.hash_buckets, 1, kMaxHashBuckets),
       Integer("admit_after_pushes", &embedding.admit_after_pushes, 1, kMostPushesToAdmit),
       Integer("expire_after_seconds", &embedding.expire_after_seconds, 0, kMostSecondsToExpire),
       Integer("max_rows", &embedding.max_rows, 0),
       Value("row_storage", ReadRowStorage, &embedding.row_storage)}));
  if (!vocabulary.empty() && embedding.hash_buckets > 0) {
    return InvalidArgument(value.where, ": ", path,
                           ": has both vocabulary and hash_buckets; keep one (vocabulary: "
                           "dynamic creates a row for every key)");
  }
  return absl::OkStatus();
}

std::string DefaultLoss(const ModelConfig& model) {
  if (model.type == "matrix_factorization") return "mean_squared_error";
  return model.classes > 1 ? "softmax_cross_entropy" : "sigmoid_cross_entropy";
}

}  // namespace

absl::Status ReadInitializer(const ConfigNode& value, const std::string& path, bool is_embedding,
                             InitializerConfig* out) {
  InitializerConfig init;
  if (value.kind == ConfigNode::Kind::kScalar) {
    init.type = value.text;
  } else if (value.kind == ConfigNode::Kind::kMap) {
    for (const ConfigNode& member : value.children) {
      const std::string member_path = absl::StrCat(path, ".", member.key);
      if (member.key == "type") {
        RETURN_IF_ERROR(ReadText(member, member_path, &init.type));
      } else if (member.key == "seed") {
        RETURN_IF_ERROR(Integer("seed", &init.seed, 0).read(member, member_path));
      } else {
        RETURN_IF_ERROR(ReadNumber(member, member_path, &init.arguments[member.key]));
      }
    }
  } else {
    return Unexpected(value, path, "an initializer, as in {type: normal, stddev: 0.05}");
  }
  const absl::Status valid = ValidateInitializer(init, is_embedding);
  if (!valid.ok()) {
    return Annotate(valid, absl::StrCat(WhereMentioned(value, valid.message()), ": ", path));
  }
  *out = std::move(init);
  return absl::OkStatus();
}

absl::Status ReadModel(const ConfigNode& section, const std::string& path, JobConfig* job) {
  ModelConfig& model = job->model;
  return ReadSection(
      section, path,
      {Choice("type", &model.type,
              {"linear", "mlp", "fm", "wide_deep", "dlrm", "matrix_factorization", "skip_gram"}),
       Choice("loss", &model.loss,
              {"sigmoid_cross_entropy", "softmax_cross_entropy", "mean_squared_error"}),
       Integer("classes", &model.classes, 1, kMaxWidth),
       Integers("hidden", &model.hidden, 1, kMaxWidth),
       Integers("bottom_hidden", &model.bottom_hidden, 1, kMaxWidth),
       Integers("top_hidden", &model.top_hidden, 1, kMaxWidth),
       Integer("factors", &model.factors, 1, kMaxWidth),
       Choice("tables", &model.tables, {"shared", "per_column", "shared_vocabulary"}),
       Value("embedding", ReadEmbedding, &model), Value("init", ReadInit, &model),
       Integer("window", &model.window, 1, kMaxWidth),
       Integer("negatives", &model.negatives, 1, kMaxNegatives),
       Integer("min_count", &model.min_count, 1),
       Custom("subsample", [&](const ConfigNode& value, const std::string& at) -> absl::Status {
         double share = 0;
         RETURN_IF_ERROR(ReadNumber(value, at, &share));
         if (share < 0 || share > 1) return Unexpected(value, at, "a number from 0 to 1");
         model.subsample = share;
         return absl::OkStatus();
       })});
}

absl::Status FinishModel(const ConfigNode& root, JobConfig* job) {
  ModelConfig& model = job->model;
  if (model.type.empty()) {
    return JobError(root, "model.type",
                    "is missing; expected one of: linear, mlp, fm, wide_deep, dlrm, "
                    "matrix_factorization, skip_gram");
  }
  if (model.loss.empty()) model.loss = DefaultLoss(model);
  const bool softmax = model.loss == "softmax_cross_entropy";
  if (softmax && model.classes < 2) {
    return JobError(root, "model.classes",
                    "is 1; softmax_cross_entropy needs at least 2: give the number of labels");
  }
  if (!softmax && model.classes > 1) {
    return JobError(root, "model.classes",
                    absl::StrCat("is ", model.classes, "; ", model.loss,
                                 " has one output: leave it out, or use softmax_cross_entropy"));
  }
  return absl::OkStatus();
}

}  // namespace cairn
