// Input pipelines in the style of tf.data: sources, transformations, iterators.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/input/dataset/element.h"

namespace cairn {

class DatasetNode;

inline constexpr int64_t kInfiniteCardinality = -1;
inline constexpr int64_t kUnknownCardinality = -2;
// AutoShardPolicy::kHint replaces Shard(kShardHint, 0).
inline constexpr int64_t kShardHint = -1;

// How elements are divided among the workers of a strategy (auto_shard.h).
enum class AutoShardPolicy { kOff = -1, kAuto = 0, kFile = 1, kData = 2, kHint = 3 };

enum class Compression { kNone, kGzip };

// One pass over a dataset. Thread safety: none; iterators of one dataset are independent, and each
// may be used in a different thread. The destructor stops and joins the iterator's threads.
class DatasetIterator {
 public:
  virtual ~DatasetIterator() = default;
  // Fills *element; false at the end, and on every later call. An error takes the place of the
  // element that caused it: earlier elements have been returned. The next call continues after that
  // element if the source can; otherwise (a corrupt file) it returns the same error. The tensors
  // may share memory with a Cache, a source or other elements: copy a tensor before you write to
  // it. Where a thread reads ahead (Prefetch, parallel Map): kCancelled if an Interruption ends the
  // wait for it, kResourceExhausted if the system refuses the thread; the next call continues.
  virtual absl::StatusOr<bool> Next(Element* element) = 0;
};

class Dataset;

// Called for one element; an exception becomes that element's error (kUnknown). A function given to
// a parallel Map, or to a dataset with iterators in several threads, is called from several threads
// at once. A function of Map may write to its element: it gets a copy of host memory that is
// shared.
using MapFunction = std::function<absl::StatusOr<Element>(Element)>;
using FilterFunction = std::function<absl::StatusOr<bool>(const Element&)>;
// Makes the element source of one iterator; the result is called like DatasetIterator::Next.
using Generator = std::function<absl::StatusOr<bool>(Element*)>;
using GeneratorFactory = std::function<Generator()>;

// The function that FlatMap and Interleave call for each element.
struct DatasetFunction {
  template <typename Function>
  requires std::is_invocable_r_v<Dataset, Function, const Element&> DatasetFunction(
      Function function)  // NOLINT(google-explicit-constructor): lambdas are given
      : call(std::move(function)) {}

  std::function<Dataset(const Element&)> call;
  // The elements are file names, and the resulting datasets read those files:
  // AutoShardPolicy::kFile then gives each worker different names.
  bool reads_files = false;
  std::optional<ElementSpec> spec = {};  // spec of the resulting datasets' elements
};

struct MapOptions {
  // The number of threads that call the function; 1 calls it in the caller's thread. The order is
  // that of the input.
  int32_t num_parallel_calls = 1;
  // The spec of the function's result. Without it all shapes count as unknown: the batch size
  // cannot be determined after the Map, and rebatching splits batch by batch.
  std::optional<ElementSpec> spec = {};
};

struct ShuffleOptions {
  std::optional<uint64_t> seed = {};  // nullopt: a different one in every process
  // Every iterator and every repetition has a different order.
  bool reshuffle_each_iteration = true;
};

// Immutable description of a pipeline; copies share it. A dataset made with wrong arguments
// (kInvalidArgument, or kNotFound where no file matches) keeps that error, and so do all datasets
// derived from it; status() and MakeIterator return it.
//
// Thread safety: all methods may be called from several threads at once.
class Dataset {
 public:
  // --- Sources. int64 scalars start, start + step, … before stop; step != 0.
  static Dataset Range(int64_t stop) { return Range(0, stop); }
  static Dataset Range(int64_t start, int64_t stop, int64_t step = 1);
  // A single element.
  static Dataset FromTensors(Element element);
  // Element i is row i of every component; all components have the same number of rows. Memory is
  // shared, not copied.
  static Dataset FromTensorSlices(Element rows);
  // The elements from `factory`'s generator; `factory` is called once for each iterator.
  static Dataset FromGenerator(GeneratorFactory factory,
                               std::optional<ElementSpec> spec = std::nullopt);
  // File names, as text scalars in this order.
  static Dataset FromFiles(std::vector<std::string> files);
  // The names that match the glob(3) pattern now, sorted; shuffled unless `shuffle` is nullopt.
  static Dataset ListFiles(const std::string& pattern,
                           std::optional<ShuffleOptions> shuffle = ShuffleOptions{});
  // The lines of text or gzip files, without line ends; at most 16 MiB each, no NUL bytes.
  static Dataset TextLine(std::vector<std::string> files);
  // The records of TFRecord files. kDataLoss, with file and offset: a wrong checksum, or an end
  // inside a record.
  static Dataset TFRecord(std::vector<std::string> files,
                          Compression compression = Compression::kNone);
  // Records of `record_bytes` between a header and a footer. kInvalidArgument, with the file: the
  // bytes between are not a whole number of records.
  static Dataset FixedLengthRecord(std::vector<std::string> files, int64_t record_bytes,
                                   int64_t header_bytes = 0, int64_t footer_bytes = 0);
  // A custom source (dataset_node.h); not null.
  static Dataset FromNode(std::shared_ptr<const DatasetNode> node);
  // No elements, only this error, which must not be OK: for functions that cannot make a dataset.
  static Dataset FromError(absl::Status error);

  // --- The file sources as functions of a file name, for FlatMap and Interleave over listed or
  // shuffled names.
  static DatasetFunction TextLineReader();
  static DatasetFunction TFRecordReader(Compression compression = Compression::kNone);
  static DatasetFunction FixedLengthRecordReader(int64_t record_bytes, int64_t header_bytes = 0,
                                                 int64_t footer_bytes = 0);

  // --- Transformations. Stacks `batch_size` elements along a new axis 0; the last batch may be
  // short.
  Dataset Batch(int64_t batch_size, bool drop_remainder = false) const;
  // Like Batch, for differing shapes: pads with zeros (empty texts) to the largest of the batch.
  Dataset PaddedBatch(int64_t batch_size, bool drop_remainder = false) const;
  // Yields the rows of the elements one by one.
  Dataset Unbatch() const;
  // Draws each element from a window of `buffer_size` elements. The order depends only on the seed
  // and on the number of earlier iterators and repetitions.
  Dataset Shuffle(int64_t buffer_size, ShuffleOptions options = {}) const;
  // Repeats the dataset `count` times; kInfiniteCardinality: endlessly.
  Dataset Repeat(int64_t count = kInfiniteCardinality) const;
  Dataset Take(int64_t count) const;  // kInfiniteCardinality: all
  Dataset Skip(int64_t count) const;  // kInfiniteCardinality: all
  Dataset Map(MapFunction function, MapOptions options = {}) const;
  Dataset Filter(FilterFunction predicate) const;
  // Concatenates the datasets that the function makes from the elements.
  Dataset FlatMap(DatasetFunction function) const;
  // Like FlatMap, but reads `cycle_length` datasets at a time, and takes `block_length` elements
  // from one before it continues to the next.
  Dataset Interleave(DatasetFunction function, int64_t cycle_length,
                     int64_t block_length = 1) const;
  // Keeps the elements of the first complete pass in memory, for all iterators.
  Dataset Cache() const;
  // Joins the components of one element of each dataset. Ends with the shortest dataset.
  static Dataset Zip(const std::vector<Dataset>& datasets);
  // Puts each element's number, counted from `start`, before its components.
  Dataset Enumerate(int64_t start = 0) const;
  Dataset Concatenate(const Dataset& other) const;
  // A separate thread reads up to `buffer_size` elements ahead, from the first Next on.
  Dataset Prefetch(int64_t buffer_size) const;
  // Yields elements index, index + num_shards, …
  Dataset Shard(int64_t num_shards, int64_t index) const;
  // Regroups the rows of batches into batches of sizes[0], sizes[1], …, cyclically, across the
  // boundaries of the incoming batches; a size of 0 gives an empty batch. Ends when no rows remain.
  Dataset Rebatch(std::vector<int64_t> sizes, bool drop_remainder = false) const;
  // Divides every batch of b rows into `splits` batches of ceil(b / splits) rows; the last ones may
  // be short or empty.
  Dataset LegacyRebatch(int64_t splits) const;

  // Sets the policy that DistributeDataset follows; derived datasets keep it.
  Dataset WithAutoShardPolicy(AutoShardPolicy policy) const;
  AutoShardPolicy auto_shard_policy() const { return policy_; }

  // --- Properties.
  const absl::Status& status() const { return status_; }
  // The number of elements, or one of the constants above; kUnknownCardinality unless status() is
  // OK.
  int64_t cardinality() const;
  const std::optional<ElementSpec>& spec() const;

  // Errors: status(), or the errors of opening the input.
  absl::StatusOr<std::unique_ptr<DatasetIterator>> MakeIterator() const;

  // Null unless status() is OK.
  const std::shared_ptr<const DatasetNode>& node() const { return node_; }

 private:
  Dataset(std::shared_ptr<const DatasetNode> node, AutoShardPolicy policy)
      : node_(std::move(node)), policy_(policy) {}
  // A dataset of `node` with this dataset's policy.
  Dataset With(std::shared_ptr<const DatasetNode> node) const { return {std::move(node), policy_}; }

  absl::Status status_;
  std::shared_ptr<const DatasetNode> node_;
  AutoShardPolicy policy_ = AutoShardPolicy::kAuto;
};

}  // namespace cairn
