// DLRM (Naumov et al., "Deep learning recommendation model", 2019): a bottom MLP maps the dense
// columns to a vector as wide as the embeddings. That vector, concatenated with the dot products of
// all pairs among it and the embeddings, is the input of a top MLP.
#include <memory>
#include <vector>

#include "common/status.h"
#include "worker/models/embedded_input.h"
#include "worker/models/key_tables.h"
#include "worker/models/layer_stack.h"
#include "worker/models/model_base.h"
#include "worker/ops/interaction.h"

namespace cairn {
namespace {

class Dlrm : public ModelBase {
 public:
  explicit Dlrm(const ModelArguments& arguments)
      : ModelBase(arguments, /*outputs=*/1),
        hash_buckets_(arguments.config.embedding.hash_buckets),
        dim_(arguments.config.embedding.dim),
        dense_columns_(arguments.schema.dense_columns),
        vectors_(arguments.schema.key_columns + 1),
        top_width_(dim_ + static_cast<int64_t>(DotPairs(static_cast<size_t>(vectors_)))),
        top_stride_(PaddedStride(top_width_)),
        tables_(&list_, "embedding/", arguments.schema.key_columns,
                SharingOf(arguments, hash_buckets_), dim_, EmbeddingInitializer()),
        bottom_(&list_, "bottom_", dense_columns_, WithLast(arguments.config.bottom_hidden, dim_),
                /*relu_last=*/true, Kernels(arguments)),
        top_(&list_, "top_", top_width_, WithLast(arguments.config.top_hidden, 1),
             /*relu_last=*/false, Kernels(arguments)),
        vectors_buffer_(list_.AddBuffer()),
        d_vectors_buffer_(list_.AddBuffer()),
        top_buffer_(list_.AddBuffer()),
        d_top_buffer_(list_.AddBuffer()),
        bottom_buffer_(list_.AddBuffer()),
        d_bottom_buffer_(list_.AddBuffer()),
        products_buffer_(list_.AddBuffer()) {}

 protected:
  absl::Status PlanParts(const Batch& batch, StepState* state) const override {
    tables_.Plan(batch, hash_buckets_, state);
    return absl::OkStatus();
  }

  void Forward(StepView& step, float* scores) const override {
    const int64_t rows = step.rows(), stride = vectors_ * dim_;
    float* bottom = Floats(step, bottom_buffer_, rows * dim_);
    float* vectors = Floats(step, vectors_buffer_, rows * stride);
    float* top = Floats(step, top_buffer_, rows * top_stride_);
    bottom_.Forward(step, BottomInput(step), bottom);
    step.ops().CopyColumns(bottom, dim_, rows, dim_, vectors, stride);
    tables_.Gather(step, vectors + dim_, stride);
    step.ops().CopyColumns(bottom, dim_, rows, dim_, top, top_stride_);
    step.ops().DotInteraction(vectors, static_cast<size_t>(rows), static_cast<size_t>(vectors_),
                              static_cast<size_t>(dim_), top + dim_,
                              static_cast<size_t>(top_stride_), Products(step));
    top_.Forward(step, TopInput(step), scores);
  }

  void Backward(StepView& step, float* d_scores) const override {
    const int64_t rows = step.rows(), stride = vectors_ * dim_;
    float* d_top = Floats(step, d_top_buffer_, rows * top_stride_);
    top_.Backward(step, TopInput(step), nullptr, d_scores, d_top, top_width_);
    float* d_vectors = Floats(step, d_vectors_buffer_, rows * stride);
    step.ops().DotInteractionBackward(Floats(step, vectors_buffer_, rows * stride), d_top + dim_,
                                      static_cast<size_t>(top_stride_), static_cast<size_t>(rows),
                                      static_cast<size_t>(vectors_), static_cast<size_t>(dim_),
                                      d_vectors, Products(step));
    tables_.Scatter(step, d_vectors + dim_, stride);
    // The bottom MLP's output is used twice: directly, and in the products.
    float* d_bottom = Floats(step, d_bottom_buffer_, rows * dim_);
    step.ops().AddColumns(d_top, top_stride_, d_vectors, stride, rows, dim_, d_bottom);
    bottom_.Backward(step, BottomInput(step), Floats(step, bottom_buffer_, rows * dim_), d_bottom,
                     nullptr, 0);
  }

 private:
  static InitializerConfig Kernels(const ModelArguments& arguments) {
    return InitializerOr(arguments.config, {.type = "glorot_uniform"});
  }
  static float* Floats(StepView& step, size_t buffer, int64_t count) {
    return step.Buffer(buffer, static_cast<size_t>(count));
  }
  float* Products(StepView& step) const {
    if (step.on_host()) return nullptr;
    return Floats(step, products_buffer_, step.rows() * vectors_ * vectors_);
  }
  LayerStack::Input BottomInput(StepView& step) const {
    return {.dense = step.dense(), .stride = dense_columns_, .arrives = true};
  }
  LayerStack::Input TopInput(StepView& step) const {
    return {.dense = Floats(step, top_buffer_, step.rows() * top_stride_), .stride = top_stride_};
  }

  const int64_t hash_buckets_, dim_, dense_columns_, vectors_, top_width_, top_stride_;
  const KeyTables tables_;
  const LayerStack bottom_, top_;
  const size_t vectors_buffer_, d_vectors_buffer_, top_buffer_, d_top_buffer_, bottom_buffer_,
      d_bottom_buffer_, products_buffer_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeDlrm(const ModelArguments& arguments) {
  if (arguments.schema.key_columns == 0 || arguments.schema.dense_columns == 0) {
    return absl::InvalidArgumentError(
        "model dlrm needs key columns and dense columns (criteo_tsv, criteo_csv); for numbers "
        "only, use mlp");
  }
  return std::make_unique<Dlrm>(arguments);
}

}  // namespace cairn
