// The job file's readers yield their batches as elements, and divide their files among workers.
#include "worker/input/dataset/reader_source.h"

#include <string>

#include "gtest/gtest.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/input/dataset/elements.h"
#include "tests/worker/input/input_files.h"
#include "worker/input/dataset/auto_shard.h"
#include "worker/input/dataset/distributed_dataset.h"
#include "worker/input/dataset/rebatch.h"

namespace cairn {
namespace {

using test::Elements;

class ReaderSourceTest : public ::testing::Test {
 protected:
  // libsvm rows with labels 1, 0, 1 in batches of `batch_size`.
  ReaderOptions Sparse(int64_t batch_size) {
    test::WriteFile(path_, "1 1:0.5 3:2\n0 2:1\n1\n");
    ReaderOptions options = test::OptionsFor("libsvm", {path_}, batch_size);
    options.training = false;
    return options;
  }

  const TempDir folder_;
  const std::string path_ = folder_.Join("x");
};

TEST_F(ReaderSourceTest, SparseRowsArePaddedToAFixedWidth) {
  const Dataset dataset = FromReader(Sparse(2), 2);
  ASSERT_TRUE(dataset.status().ok()) << dataset.status();
  EXPECT_EQ(Elements(dataset),
            "[[[1.0,0.0],[[0,2],[1,-1]],[[0.5,2.0],[1.0,0.0]]],[[1.0],[[-1,-1]],[[0.0,0.0]]]]");
  EXPECT_EQ(Elements(dataset), Elements(dataset));
  EXPECT_EQ(*ComputeBatchSize(dataset), 2);
  EXPECT_EQ((*dataset.spec())[1].ToText(), "int32 [-1, 2]");
}

TEST_F(ReaderSourceTest, RowsWiderThanSaidAndMissingWidthsAreRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(FromReader(Sparse(2)).status()));
  EXPECT_EQ(Elements(FromReader(Sparse(2), 1)), "[] then INVALID_ARGUMENT");
}

TEST_F(ReaderSourceTest, DenseColumnsAreAComponent) {
  test::WriteFile(path_, "1,2,3\n0,4,5\n");
  ReaderOptions options = test::OptionsFor("csv", {path_}, 2);
  options.training = false;
  EXPECT_EQ(Elements(FromReader(options)), "[[[1.0,0.0],[[2.0,3.0],[4.0,5.0]]]]");
}

TEST_F(ReaderSourceTest, MissingFilesAreKeptAsTheDatasetsError) {
  const Dataset dataset = FromReader(test::OptionsFor("libsvm", {folder_.Join("none")}, 2), 4);
  EXPECT_TRUE(absl::IsNotFound(dataset.status())) << dataset.status();
}

TEST_F(ReaderSourceTest, FileShardingIsTheReadersOwn) {
  const Dataset dataset = FromReader(Sparse(1), 2);
  EXPECT_EQ(Elements(AutoShard(dataset, AutoShardPolicy::kAuto, 2, 1)->dataset),
            "[[[0.0],[[1,-1]],[[1.0,0.0]]]]");
  ReaderOptions divided = Sparse(1);
  divided.workers = 2;
  EXPECT_TRUE(absl::IsInvalidArgument(
      AutoShard(FromReader(divided, 2), AutoShardPolicy::kAuto, 2, 1).status()));
}

TEST_F(ReaderSourceTest, BatchesAreCutForReplicas) {
  EXPECT_EQ(test::Steps(DistributeDataset(FromReader(Sparse(3), 1 + 1), test::MirroredInput(2))),
            "[[[[1.0,0.0],[[0,2],[1,-1]],[[0.5,2.0],[1.0,0.0]]],[[1.0],[[-1,-1]],[[0.0,0.0]]]]]");
}

}  // namespace
}  // namespace cairn
