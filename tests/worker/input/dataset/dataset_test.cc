// Sources and transformations yield the elements of their tf.data namesakes.
#include "worker/input/dataset/dataset.h"

#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/input/dataset/elements.h"
#include "tests/worker/input/input_files.h"
#include "worker/input/dataset/rows.h"

namespace cairn {
namespace {

using test::Drain;
using test::Elements;

int64_t Int(const Element& element) { return element[0].values<int64_t>()[0]; }
Element Number(int64_t value) { return {Tensor::Scalar<int64_t>(value)}; }

absl::StatusOr<Element> Square(Element element) { return Number(Int(element) * Int(element)); }
absl::StatusOr<Element> FailAtTwo(Element element) {
  if (Int(element) == 2) return absl::DataLossError("two");
  return element;
}

TEST(Dataset, RangeCountsInStepsOfEitherSign) {
  EXPECT_EQ(Elements(Dataset::Range(4)), "[0,1,2,3]");
  EXPECT_EQ(Elements(Dataset::Range(2, 9, 3)), "[2,5,8]");
  EXPECT_EQ(Elements(Dataset::Range(5, 0, -2)), "[5,3,1]");
  EXPECT_EQ(Elements(Dataset::Range(5, 0)), "[]");
  EXPECT_EQ(Dataset::Range(2, 9, 3).cardinality(), 3);
  EXPECT_EQ(Elements(Dataset::Range(0, 1, 0)), "[] then INVALID_ARGUMENT");
  EXPECT_EQ(Elements(Dataset::Range(INT64_MAX - 1, INT64_MAX)), "[9223372036854775806]");
}

TEST(Dataset, SlicesAreRowsOfAllComponentsAndShareMemory) {
  const Tensor numbers = Tensor::Of<float>({2, 2}, {1, 2, 3, 4});
  const Dataset dataset = Dataset::FromTensorSlices({numbers, Tensor::Texts({2}, {"a", "b"})});
  EXPECT_EQ(Elements(dataset), R"([[[1.0,2.0],"a"],[[3.0,4.0],"b"]])");
  EXPECT_EQ(dataset.cardinality(), 2);
  Element first;
  ASSERT_TRUE(*(*dataset.MakeIterator())->Next(&first));
  EXPECT_EQ(first[0].data(), numbers.data());
  EXPECT_EQ(Elements(Dataset::FromTensorSlices({numbers, Tensor::Zeros(DType::kInt32, {3})})),
            "[] then INVALID_ARGUMENT");
  EXPECT_EQ(Elements(Dataset::FromTensorSlices({Tensor::Scalar<int32_t>(1)})),
            "[] then INVALID_ARGUMENT");
}

TEST(Dataset, GeneratorsStartAnewInEveryIterator) {
  const Dataset dataset = Dataset::FromGenerator([] {
    return [next = int64_t{0}](Element* element) mutable -> absl::StatusOr<bool> {
      *element = Number(next);
      return next++ < 3;
    };
  });
  EXPECT_EQ(Elements(dataset), "[0,1,2]");
  EXPECT_EQ(Elements(dataset.Repeat(2)), "[0,1,2,0,1,2]");
}

TEST(Dataset, BatchStacksRowsAndTheLastMayBeShort) {
  EXPECT_EQ(Elements(Dataset::Range(5).Batch(2)), "[[0,1],[2,3],[4]]");
  EXPECT_EQ(Elements(Dataset::Range(5).Batch(2, true)), "[[0,1],[2,3]]");
  EXPECT_EQ(Elements(Dataset::Range(4).Batch(2).Batch(2)), "[[[0,1],[2,3]]]");
  EXPECT_EQ(Dataset::Range(5).Batch(2).cardinality(), 3);
  EXPECT_EQ(Dataset::Range(5).Batch(2, true).cardinality(), 2);
  EXPECT_EQ(Elements(Dataset::Range(5).Batch(0)), "[] then INVALID_ARGUMENT");
  // More rows than are allocated at first.
  const test::Drained large = Drain(Dataset::Range(5000).Batch(4000));
  ASSERT_EQ(large.elements.size(), 2u);
  EXPECT_EQ(large.elements[0].size(), 4000u);
  EXPECT_EQ(large.elements[1].back(), 4999);
}

TEST(Dataset, BatchRefusesShapesThatDiffer) {
  const Dataset ragged = Dataset::Range(3).Map([](Element element) -> absl::StatusOr<Element> {
    return Element{Tensor::Full(DType::kInt64, {Int(element)}, 7)};
  });
  const auto refused = Drain(ragged.Batch(3)).status;
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_NE(refused.message().find("PaddedBatch"), std::string::npos) << refused;
  EXPECT_EQ(Elements(ragged.PaddedBatch(2)), "[[[0],[7]],[[7,7]]]");
}

TEST(Dataset, PaddedBatchPadsEveryAxisOfNumbersAndTexts) {
  const std::vector<Element> rows{
      {Tensor::Of<int32_t>({1, 2}, {1, 2}), Tensor::Texts({1}, {"a"})},
      {Tensor::Of<int32_t>({2, 1}, {3, 4}), Tensor::Texts({2}, {"b", "c"})}};
  const Dataset dataset = Dataset::Range(2).Map([rows](Element element) -> absl::StatusOr<Element> {
    return rows[static_cast<size_t>(Int(element))];
  });
  EXPECT_EQ(Elements(dataset.PaddedBatch(2)),
            R"([[[[[1,2],[0,0]],[[3,0],[4,0]]],[["a",""],["b","c"]]]])");
}

TEST(Dataset, UnbatchUndoesBatch) {
  EXPECT_EQ(Elements(Dataset::Range(5).Batch(2).Unbatch()), "[0,1,2,3,4]");
  EXPECT_EQ(Elements(Dataset::Range(5).Unbatch()), "[] then INVALID_ARGUMENT");
}

TEST(Dataset, ShuffleDrawsFromAWindowByItsSeed) {
  const Dataset range = Dataset::Range(100);
  const std::string order = Elements(range.Shuffle(10, {.seed = 3}));
  EXPECT_EQ(Elements(range.Shuffle(10, {.seed = 3})), order);
  EXPECT_NE(Elements(range.Shuffle(10, {.seed = 4})), order);
  const auto drawn = Drain(range.Shuffle(10, {.seed = 3})).elements.get<std::vector<int64_t>>();
  EXPECT_EQ(std::set<int64_t>(drawn.begin(), drawn.end()).size(), 100u);
  for (size_t i = 0; i < drawn.size(); ++i) EXPECT_LT(drawn[i], static_cast<int64_t>(i) + 10);
  EXPECT_EQ(Elements(range.Shuffle(1, {.seed = 3})), Elements(range));
}

TEST(Dataset, ShuffleReshufflesInEveryIteratorAndRepetitionUnlessTold) {
  const Dataset again = Dataset::Range(20).Shuffle(20, {.seed = 1});
  EXPECT_NE(Elements(again), Elements(again));
  const auto twice = Drain(again.Repeat(2)).elements;
  EXPECT_NE(nlohmann::json(twice.begin(), twice.begin() + 20),
            nlohmann::json(twice.begin() + 20, twice.end()));
  const Dataset fixed =
      Dataset::Range(20).Shuffle(20, {.seed = 1, .reshuffle_each_iteration = false});
  EXPECT_EQ(Elements(fixed), Elements(fixed));
}

TEST(Dataset, RepeatTakeSkip) {
  const Dataset range = Dataset::Range(3);
  EXPECT_EQ(Elements(range.Repeat(2)), "[0,1,2,0,1,2]");
  EXPECT_EQ(Elements(range.Repeat(0)), "[]");
  EXPECT_EQ(Elements(range.Repeat().Take(7)), "[0,1,2,0,1,2,0]");
  EXPECT_EQ(Elements(Dataset::Range(0).Repeat()), "[]");
  EXPECT_EQ(Elements(range.Take(-1)), "[0,1,2]");
  EXPECT_EQ(Elements(range.Skip(2)), "[2]");
  EXPECT_EQ(Elements(range.Skip(5)), "[]");
  EXPECT_EQ(Elements(range.Skip(-1)), "[]");
  EXPECT_EQ(range.Repeat().cardinality(), kInfiniteCardinality);
  EXPECT_EQ(range.Repeat().Take(7).cardinality(), 7);
  EXPECT_EQ(range.Skip(2).cardinality(), 1);
}

TEST(Dataset, MapKeepsOrderInAnyNumberOfThreads) {
  const std::string squares = Elements(Dataset::Range(500).Map(Square));
  for (const int32_t calls : {2, 3, 8}) {
    EXPECT_EQ(Elements(Dataset::Range(500).Map(Square, {.num_parallel_calls = calls})), squares);
  }
}

TEST(Dataset, ErrorsStandWhereTheyHappen) {
  for (const int32_t calls : {1, 3}) {
    const Dataset dataset = Dataset::Range(5).Map(FailAtTwo, {.num_parallel_calls = calls});
    EXPECT_EQ(Elements(dataset), "[0,1] then DATA_LOSS");
    EXPECT_EQ(Elements(dataset.Prefetch(2)), "[0,1] then DATA_LOSS");
    auto iterator = *dataset.Prefetch(2).MakeIterator();
    EXPECT_EQ(Drain(iterator.get()).elements.dump(), "[0,1]");
    EXPECT_EQ(Drain(iterator.get()).elements.dump(), "[3,4]");
  }
}

// A function's exception is an error in whichever thread the function runs.
TEST(Dataset, WhatAFunctionThrowsIsAnError) {
  const auto throws_at_two = [](Element element) -> absl::StatusOr<Element> {
    if (Int(element) == 2) throw std::out_of_range("row 2");
    return element;
  };
  EXPECT_EQ(Elements(Dataset::Range(5).Map(throws_at_two, {.num_parallel_calls = 3})),
            "[0,1] then UNKNOWN");
  EXPECT_EQ(Elements(Dataset::Range(5).Map(throws_at_two).Prefetch(2)), "[0,1] then UNKNOWN");
  EXPECT_EQ(Elements(Dataset::Range(5).Map(throws_at_two)), "[0,1] then UNKNOWN");
}

TEST(Dataset, FilterKeepsWhatThePredicateTakes) {
  const Dataset odd = Dataset::Range(6).Filter(
      [](const Element& element) -> absl::StatusOr<bool> { return Int(element) % 2 == 1; });
  EXPECT_EQ(Elements(odd), "[1,3,5]");
  EXPECT_EQ(odd.cardinality(), kUnknownCardinality);
}

TEST(Dataset, FlatMapAndInterleaveFollowTheirCycle) {
  const auto copies = [](const Element& element) {
    return Dataset::FromTensors(element).Repeat(Int(element));
  };
  EXPECT_EQ(Elements(Dataset::Range(4).FlatMap(copies)), "[1,2,2,3,3,3]");
  // tf.data's documentation: cycle_length 2, block_length 4 over 1 to 5, six times each.
  const auto six = [](const Element& element) { return Dataset::FromTensors(element).Repeat(6); };
  EXPECT_EQ(Elements(Dataset::Range(1, 6).Interleave(six, 2, 4)),
            "[1,1,1,1,2,2,2,2,1,1,2,2,3,3,3,3,4,4,4,4,3,3,4,4,5,5,5,5,5,5]");
  const auto fails = [](const Element&) {
    return Dataset::FromError(absl::DataLossError("no dataset"));
  };
  EXPECT_EQ(Elements(Dataset::Range(2).FlatMap(fails)), "[] then DATA_LOSS");
}

// A function of Map may change its element in place: it gets a copy of memory that a cache, a
// source or another element shares, and only then.
TEST(Dataset, AMapInPlaceLeavesCachesAndSourcesAsTheyWere) {
  const auto add_ten = [](Element element) -> absl::StatusOr<Element> {
    for (int64_t& number : element[0].mutable_values<int64_t>()) number += 10;
    return element;
  };
  const Tensor numbers = Tensor::Vector<int64_t>({0, 1, 2});
  auto foreign = std::make_shared<std::vector<int64_t>>(3, 5);
  const Dataset wrapped = Dataset::FromGenerator([foreign] {
    return [foreign, left = 1](Element* element) mutable -> absl::StatusOr<bool> {
      element->assign(1, Tensor::Wrap(DType::kInt64, {3}, Cpu(0), foreign, foreign->data()));
      return left-- > 0;
    };
  });
  for (const int32_t threads : {1, 3}) {
    const MapOptions options{.num_parallel_calls = threads};
    for (const auto& [dataset, mapped] : std::vector<std::pair<Dataset, std::string>>{
             {Dataset::Range(3).Batch(3).Cache(), "[[10,11,12]]"},
             {Dataset::FromTensors({numbers}), "[[10,11,12]]"},
             {Dataset::FromTensorSlices({numbers}), "[10,11,12]"},
             {Dataset::FromTensors({numbers}).Unbatch(), "[10,11,12]"},
             {Dataset::Range(3).Batch(3).Cache().Unbatch().Skip(1), "[11,12]"},
             {wrapped, "[[15,15,15]]"}}) {
      for (int pass = 0; pass < 3; ++pass) {
        EXPECT_EQ(Elements(dataset.Map(add_ten, options)), mapped) << pass;
      }
    }
  }
  EXPECT_EQ(test::ToJson(numbers).dump(), "[0,1,2]");
}

TEST(Dataset, AMapGetsMemoryThatNothingSharesWithoutACopy) {
  const void* made = nullptr;
  const auto note = [&made](Element element) -> absl::StatusOr<Element> {
    made = element[0].data();
    return element;
  };
  auto iterator = *Dataset::Range(3)
                       .Batch(3)
                       .Map(Square)
                       .Map(note)
                       .Map([&made](Element element) -> absl::StatusOr<Element> {
                         EXPECT_EQ(element[0].data(), made);
                         return element;
                       })
                       .MakeIterator();
  EXPECT_EQ(Drain(iterator.get()).elements.dump(), "[0]");
}

TEST(Dataset, CacheReadsItsInputOnceForAllIterators) {
  auto calls = std::make_shared<int>(0);
  const Dataset dataset = Dataset::Range(3)
                              .Map([calls](Element element) -> absl::StatusOr<Element> {
                                ++*calls;
                                return element;
                              })
                              .Cache();
  EXPECT_EQ(Elements(dataset.Take(1)), "[0]");  // an incomplete pass caches nothing
  EXPECT_EQ(*calls, 1);
  EXPECT_EQ(Elements(dataset.Repeat(3)), "[0,1,2,0,1,2,0,1,2]");
  EXPECT_EQ(Elements(dataset), "[0,1,2]");
  EXPECT_EQ(*calls, 4);
}

TEST(Dataset, ZipConcatenateShardEnumerate) {
  const Dataset range = Dataset::Range(5);
  EXPECT_EQ(Elements(Dataset::Zip({range, Dataset::Range(10, 13)})), "[[0,10],[1,11],[2,12]]");
  EXPECT_EQ(Dataset::Zip({range, Dataset::Range(10, 13)}).cardinality(), 3);
  EXPECT_EQ(Elements(range.Take(2).Concatenate(range.Skip(3))), "[0,1,3,4]");
  EXPECT_EQ(Elements(range.Shard(2, 1)), "[1,3]");
  EXPECT_EQ(range.Shard(2, 0).cardinality(), 3);
  EXPECT_EQ(Elements(range.Shard(2, 2)), "[] then INVALID_ARGUMENT");
  EXPECT_EQ(Elements(range.Shard(kShardHint, 0)), "[] then INVALID_ARGUMENT");
  EXPECT_EQ(Elements(Dataset::Range(7, 9).Enumerate(3)), "[[3,7],[4,8]]");
  const Dataset texts = Dataset::FromFiles({"a"});
  EXPECT_EQ(Elements(range.Concatenate(texts)), "[] then INVALID_ARGUMENT");
}

TEST(Dataset, PrefetchYieldsTheSameElements) {
  EXPECT_EQ(Elements(Dataset::Range(100).Prefetch(3)), Elements(Dataset::Range(100)));
  EXPECT_EQ(Elements(Dataset::Range(0).Prefetch(1)), "[]");
}

TEST(Dataset, ListFilesSortsOrShufflesAndRefusesNoMatch) {
  const TempDir folder;
  for (const char* name : {"b", "a", "c"}) test::WriteFile(folder.Join(name), name);
  const Dataset names = Dataset::ListFiles(folder.Join("*"), std::nullopt);
  EXPECT_EQ(Elements(names),
            Elements(Dataset::FromFiles({folder.Join("a"), folder.Join("b"), folder.Join("c")})));
  EXPECT_EQ(Elements(names.FlatMap(Dataset::TextLineReader())), R"(["a","b","c"])");
  EXPECT_EQ(Drain(Dataset::ListFiles(folder.Join("*"))).elements.size(), 3u);
  EXPECT_EQ(Elements(Dataset::ListFiles(folder.Join("x*"))), "[] then NOT_FOUND");
}

TEST(Dataset, TextLinesComeFromSeveralFilesAndGzip) {
  const TempDir folder;
  test::WriteFile(folder.Join("plain"), "one\r\ntwo\n");
  test::WriteFile(folder.Join("packed"), test::Gzip("three\n\nlast"));
  EXPECT_EQ(Elements(Dataset::TextLine({folder.Join("plain"), folder.Join("packed")})),
            R"(["one","two","three","","last"])");
  const auto missing = Drain(Dataset::TextLine({folder.Join("plain"), folder.Join("none")}));
  EXPECT_EQ(missing.elements.dump(), R"(["one","two"])");
  EXPECT_TRUE(absl::IsNotFound(missing.status)) << missing.status;
}

TEST(Dataset, SpecsFollowTheSteps) {
  const auto spec = [](const Dataset& dataset) {
    return dataset.spec().has_value() ? (*dataset.spec())[0].ToText() : "unknown";
  };
  const Dataset range = Dataset::Range(4);
  EXPECT_EQ(spec(range), "int64 []");
  EXPECT_EQ(spec(range.Batch(2)), "int64 [-1]");
  EXPECT_EQ(spec(range.Batch(2, true).Shuffle(3).Take(1)), "int64 [2]");
  EXPECT_EQ(spec(range.Batch(2).Unbatch()), "int64 []");
  EXPECT_EQ(spec(range.Map(Square)), "unknown");
  EXPECT_EQ(spec(range.Batch(2, true).Concatenate(range.Batch(3, true))), "int64 [-1]");
  EXPECT_EQ(spec(range.Batch(2).Rebatch({1, 2})), "int64 [-1]");
  EXPECT_EQ(spec(range.Batch(4, true).LegacyRebatch(2)), "int64 [2]");
  EXPECT_EQ(spec(Dataset::TextLine({"x"}).Batch(2)), "text [-1]");
}

TEST(Dataset, IteratorsAreIndependentAndOutliveTheirDataset) {
  auto dataset = std::make_unique<Dataset>(Dataset::Range(3).Map(Square).Batch(2));
  auto first = *dataset->MakeIterator();
  auto second = *dataset->MakeIterator();
  EXPECT_EQ(Drain(first.get(), 1).elements.dump(), "[[0,1]]");
  dataset.reset();
  EXPECT_EQ(Drain(second.get()).elements.dump(), "[[0,1],[4]]");
  EXPECT_EQ(Drain(first.get()).elements.dump(), "[[4]]");
  Element none;
  EXPECT_FALSE(*first->Next(&none));
}

TEST(Dataset, WrongArgumentsAreKeptByWhatIsMadeOfThem) {
  const Dataset dataset = Dataset::Range(3).Batch(-1).Repeat().Shuffle(10).Prefetch(1);
  EXPECT_TRUE(absl::IsInvalidArgument(dataset.status()));
  EXPECT_EQ(dataset.status().message(), "Batch: batch_size is -1; it must be 1 or more");
  EXPECT_EQ(dataset.MakeIterator().status(), dataset.status());
}

}  // namespace
}  // namespace cairn
