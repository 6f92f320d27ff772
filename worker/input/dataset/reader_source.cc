#include "worker/input/dataset/reader_source.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/errors.h"
#include "common/status.h"
#include "worker/input/dataset/dataset_node.h"

namespace cairn {
namespace {

ElementSpec SpecOfSchema(const Schema& schema, int64_t sparse_entries) {
  ElementSpec spec{TensorSpec::Numbers(DType::kFloat32, Shape{-1})};
  if (schema.dense_columns > 0) {
    spec.push_back(TensorSpec::Numbers(DType::kFloat32, Shape{-1, schema.dense_columns}));
  }
  if (schema.key_columns > 0) {
    spec.push_back(TensorSpec::Numbers(DType::kInt64, Shape{-1, schema.key_columns}));
  }
  if (schema.sparse_columns > 0) {
    spec.push_back(TensorSpec::Numbers(DType::kInt32, Shape{-1, sparse_entries}));
    spec.push_back(TensorSpec::Numbers(DType::kFloat32, Shape{-1, sparse_entries}));
  }
  return spec;
}

class ReaderIterator : public DatasetIterator {
 public:
  ReaderIterator(std::unique_ptr<Reader> reader, int64_t sparse_entries)
      : reader_(std::move(reader)), sparse_entries_(sparse_entries) {}

  absl::StatusOr<bool> Next(Element* element) override {
    if (ended_) return false;
    ASSIGN_OR_RETURN(const bool more, reader_->Next(&batch_));
    ended_ = !more;
    if (!more) return false;
    const Schema& schema = reader_->schema();
    element->clear();
    element->push_back(Tensor::Vector<float>(batch_.labels));
    if (schema.dense_columns > 0) {
      element->push_back(Tensor::Of<float>({batch_.rows, schema.dense_columns}, batch_.dense));
    }
    if (schema.key_columns > 0) {
      element->push_back(Tensor::Of<int64_t>({batch_.rows, schema.key_columns}, batch_.keys));
    }
    if (schema.sparse_columns > 0) RETURN_IF_ERROR(AppendSparse(element));
    return true;
  }

 private:
  absl::Status AppendSparse(Element* element) const {
    Tensor columns = Tensor::Full(DType::kInt32, {batch_.rows, sparse_entries_}, -1);
    Tensor values = Tensor::Zeros(DType::kFloat32, {batch_.rows, sparse_entries_});
    for (int64_t row = 0; row < batch_.rows; ++row) {
      const int64_t begin = batch_.row_offsets[static_cast<size_t>(row)];
      const int64_t entries = batch_.row_offsets[static_cast<size_t>(row) + 1] - begin;
      if (entries > sparse_entries_) {
        return InvalidArgument("FromReader: row ", batch_.next_row - batch_.rows + row,
                               " of epoch ", batch_.epoch, " has ", entries,
                               " entries, more than sparse_entries, ", sparse_entries_);
      }
      std::copy_n(batch_.columns.begin() + begin, entries,
                  columns.mutable_values<int32_t>().begin() + row * sparse_entries_);
      std::copy_n(batch_.values.begin() + begin, entries,
                  values.mutable_values<float>().begin() + row * sparse_entries_);
    }
    element->push_back(std::move(columns));
    element->push_back(std::move(values));
    return absl::OkStatus();
  }

  const std::unique_ptr<Reader> reader_;
  const int64_t sparse_entries_;
  Batch batch_;
  bool ended_ = false;
};

class ReaderNode : public SourceNode {
 public:
  ReaderNode(ReaderOptions options, int64_t sparse_entries, ElementSpec spec)
      : SourceNode(std::move(spec)),
        options_(std::move(options)),
        sparse_entries_(sparse_entries) {}
  std::string name() const override { return "FromReader"; }
  int64_t cardinality() const override { return kUnknownCardinality; }
  int64_t batch_size() const override { return options_.data.batch_size; }
  FileSharding file_sharding() const override { return FileSharding::kItself; }
  absl::StatusOr<NodePtr> Sharded(int64_t workers, int64_t index) const override {
    if (options_.workers != 1) {
      return InvalidArgument("FromReader: its options divide the input among ", options_.workers,
                             " workers already; use AutoShardPolicy::kOff");
    }
    ReaderOptions options = options_;
    options.worker = static_cast<int32_t>(index);
    options.workers = static_cast<int32_t>(workers);
    return std::make_shared<ReaderNode>(std::move(options), sparse_entries_, *spec());
  }
  absl::StatusOr<std::unique_ptr<DatasetIterator>> MakeIterator(
      const IterationContext& context) const override {
    ASSIGN_OR_RETURN(auto reader, Reader::Open(options_));
    return std::make_unique<ReaderIterator>(std::move(reader), sparse_entries_);
  }

 private:
  const ReaderOptions options_;
  const int64_t sparse_entries_;
};

}  // namespace

Dataset FromReader(const ReaderOptions& options, int64_t sparse_entries) {
  const absl::StatusOr<std::unique_ptr<Reader>> reader = Reader::Open(options);
  if (!reader.ok()) return Dataset::FromError(reader.status());
  const Schema& schema = (*reader)->schema();
  if (schema.sparse_columns > 0 && sparse_entries < 1) {
    return Dataset::FromError(
        InvalidArgument("FromReader: the rows are sparse; sparse_entries is ", sparse_entries,
                        ", it must be the entries of the widest row, 1 or more"));
  }
  return Dataset::FromNode(
      std::make_shared<ReaderNode>(options, sparse_entries, SpecOfSchema(schema, sparse_entries)));
}

}  // namespace cairn
