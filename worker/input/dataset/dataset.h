// Input pipelines in the manner of tf.data: sources, transformations, iterators.
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
// Shard(kShardHint, 0) is replaced by AutoShardPolicy::kHint.
inline constexpr int64_t kShardHint = -1;

// How elements are divided among the workers of a strategy (auto_shard.h).
enum class AutoShardPolicy { kOff = -1, kAuto = 0, kFile = 1, kData = 2, kHint = 3 };

enum class Compression { kNone, kGzip };

// One pass over a dataset. Thread safety: none; iterators of one dataset are independent, and each
// may be used in a thread of its own. Destroying one ends and joins the threads it has.
class DatasetIterator {
 public:
  virtual ~DatasetIterator() = default;
  // Fills *element; false at the end, then and ever after. An error stands for the element at which
  // it happened: those before it have been given; after it the next call goes on behind that
  // element where its source can, and gives the same error where it cannot (a damaged file).
  virtual absl::StatusOr<bool> Next(Element* element) = 0;
};

class Dataset;

// Called for one element; what it throws is that element's error (kUnknown). Those given to a
// parallel Map, or to a dataset with several iterators in several threads, are called from several
// threads at once.
using MapFunction = std::function<absl::StatusOr<Element>(Element)>;
using FilterFunction = std::function<absl::StatusOr<bool>(const Element&)>;
// Makes the element source of one iterator; what it returns is called as DatasetIterator::Next.
using Generator = std::function<absl::StatusOr<bool>(Element*)>;
using GeneratorFactory = std::function<Generator()>;

// What FlatMap and Interleave call for each element.
struct DatasetFunction {
  template <typename Function>
  requires std::is_invocable_r_v<Dataset, Function, const Element&> DatasetFunction(
      Function function)  // NOLINT(google-explicit-constructor): lambdas are given
      : call(std::move(function)) {}

  std::function<Dataset(const Element&)> call;
  // The elements are names of files, and the datasets read them: AutoShardPolicy::kFile gives each
  // worker names of its own.
  bool reads_files = false;
  std::optional<ElementSpec> spec = {};  // of the elements of the datasets
};

struct MapOptions {
  // Threads that call the function; 1 calls it in the caller's. Order is that of the input.
  int32_t num_parallel_calls = 1;
  // What the function returns. Without it shapes count as unknown: the batch size is not found
  // behind the Map, and rebatching splits batch by batch.
  std::optional<ElementSpec> spec = {};
};

struct ShuffleOptions {
  std::optional<uint64_t> seed = {};  // nullopt: another one in every process
  // Every iterator, and every repetition, has an order of its own.
  bool reshuffle_each_iteration = true;
};

// Immutable description of a pipeline; copies share it. A dataset made with wrong arguments
// (kInvalidArgument, or kNotFound where no file matches) keeps that error, as does all that is made
// of it; status() and MakeIterator give it.
//
// Thread safety: all methods may be called from several threads at once.
class Dataset {
 public:
  // --- Sources.
  // int64 scalars start, start + step, … before stop; step != 0.
  static Dataset Range(int64_t stop) { return Range(0, stop); }
  static Dataset Range(int64_t start, int64_t stop, int64_t step = 1);
  // One element.
  static Dataset FromTensors(Element element);
  // Element i is row i of every component; all have as many rows. Memory is shared, not copied.
  static Dataset FromTensorSlices(Element rows);
  // What `factory` yields; it is called once an iterator.
  static Dataset FromGenerator(GeneratorFactory factory,
                               std::optional<ElementSpec> spec = std::nullopt);
  // Names of files, as text scalars in this order.
  static Dataset FromFiles(std::vector<std::string> files);
  // Names that match the pattern of glob(3) now, sorted; shuffled unless `shuffle` is nullopt.
  static Dataset ListFiles(const std::string& pattern,
                           std::optional<ShuffleOptions> shuffle = ShuffleOptions{});
  // Lines without line ends, of text or gzip files; at most 16 MiB each, no NUL bytes.
  static Dataset TextLine(std::vector<std::string> files);
  // Records of TFRecord files. kDataLoss, with file and offset: a checksum that is wrong, or an end
  // inside a record.
  static Dataset TFRecord(std::vector<std::string> files,
                          Compression compression = Compression::kNone);
  // Runs of `record_bytes` between a header and a footer. kInvalidArgument, with the file: the
  // bytes between are no whole number of records.
  static Dataset FixedLengthRecord(std::vector<std::string> files, int64_t record_bytes,
                                   int64_t header_bytes = 0, int64_t footer_bytes = 0);
  // A source of one's own (dataset_node.h); not null.
  static Dataset FromNode(std::shared_ptr<const DatasetNode> node);
  // No elements but this error, which is not OK: for functions that cannot make a dataset.
  static Dataset FromError(absl::Status error);

  // --- The file sources as functions of an element that is a file's name: for FlatMap and
  // Interleave over names that are shuffled or listed.
  static DatasetFunction TextLineReader();
  static DatasetFunction TFRecordReader(Compression compression = Compression::kNone);
  static DatasetFunction FixedLengthRecordReader(int64_t record_bytes, int64_t header_bytes = 0,
                                                 int64_t footer_bytes = 0);

  // --- Transformations.
  // Joins `batch_size` elements along a new axis 0; the last batch may be short.
  Dataset Batch(int64_t batch_size, bool drop_remainder = false) const;
  // As Batch, for shapes that differ: zeros (empty texts) up to the widest of the batch.
  Dataset PaddedBatch(int64_t batch_size, bool drop_remainder = false) const;
  // Rows of the elements, one by one.
  Dataset Unbatch() const;
  // Each element is drawn from a window of `buffer_size` ones. The order depends on the seed, and
  // on how many iterators and repetitions were before, alone.
  Dataset Shuffle(int64_t buffer_size, ShuffleOptions options = {}) const;
  // `count` passes; kInfiniteCardinality: without end.
  Dataset Repeat(int64_t count = kInfiniteCardinality) const;
  Dataset Take(int64_t count) const;  // kInfiniteCardinality: all
  Dataset Skip(int64_t count) const;  // kInfiniteCardinality: all
  Dataset Map(MapFunction function, MapOptions options = {}) const;
  Dataset Filter(FilterFunction predicate) const;
  // The datasets that the function makes of the elements, one after the other.
  Dataset FlatMap(DatasetFunction function) const;
  // `cycle_length` of them at a time, `block_length` elements of each in turn.
  Dataset Interleave(DatasetFunction function, int64_t cycle_length,
                     int64_t block_length = 1) const;
  // Keeps the elements of the first complete pass in memory, for all iterators.
  Dataset Cache() const;
  // Components of all, side by side; as long as the shortest.
  static Dataset Zip(const std::vector<Dataset>& datasets);
  // (number from `start`, components).
  Dataset Enumerate(int64_t start = 0) const;
  Dataset Concatenate(const Dataset& other) const;
  // A thread of its own reads up to `buffer_size` elements ahead, from the first Next on.
  Dataset Prefetch(int64_t buffer_size) const;
  // Elements index, index + num_shards, …
  Dataset Shard(int64_t num_shards, int64_t index) const;
  // Cuts the rows of batches anew: batches of sizes[0], sizes[1], …, round and round, across the
  // borders of the incoming ones; a size of 0 gives an empty batch. Ends where nothing remains.
  Dataset Rebatch(std::vector<int64_t> sizes, bool drop_remainder = false) const;
  // Cuts every batch of b rows into `splits` of ceil(b / splits) rows; the last ones may be short
  // or empty.
  Dataset LegacyRebatch(int64_t splits) const;

  // The policy that DistributeDataset follows; kept by all that is made of this dataset.
  Dataset WithAutoShardPolicy(AutoShardPolicy policy) const;
  AutoShardPolicy auto_shard_policy() const { return policy_; }

  // --- What is known.
  const absl::Status& status() const { return status_; }
  // Elements, or one of the constants above; kUnknownCardinality where status() is not OK.
  int64_t cardinality() const;
  const std::optional<ElementSpec>& spec() const;

  // status(), or what opening the input gives.
  absl::StatusOr<std::unique_ptr<DatasetIterator>> MakeIterator() const;

  // Where status() is OK; else null.
  const std::shared_ptr<const DatasetNode>& node() const { return node_; }

 private:
  Dataset(std::shared_ptr<const DatasetNode> node, AutoShardPolicy policy)
      : node_(std::move(node)), policy_(policy) {}
  // A dataset of `node` made of this one, or this one's error.
  Dataset With(std::shared_ptr<const DatasetNode> node) const { return {std::move(node), policy_}; }

  absl::Status status_;
  std::shared_ptr<const DatasetNode> node_;
  AutoShardPolicy policy_ = AutoShardPolicy::kAuto;
};

}  // namespace cairn
