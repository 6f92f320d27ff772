// A manifest is read as it was written, a changed one is refused, and only this job's checkpoint
// names count.
#include "worker/trainer/checkpoints/checkpoint_manifest.h"
#include "tests/support/file_text.h"

#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "worker/trainer/checkpoints/checkpoint_folders.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

CheckpointManifest Manifest(const std::string& job, int64_t number) {
  CheckpointManifest manifest{.job = job,
                              .name = NewCheckpointName(job, 1200),
                              .number = number,
                              .step = 1200,
                              .timeline = int64_t{3} << 32,
                              .made = "2030-01-31T12:34:56Z",
                              .seconds = 0.5};
  ServerCheckpoint server{.server = 0, .folder = "/c/ps-0", .host = "h"};
  server.files = {{"db/000012.sst", int64_t{1} << 40, ~uint64_t{0}}, {"CAIRN", 7, 1}};
  server.workers = {{0, (int64_t{3} << 32) + 1, 77, std::string("\0\xff bytes", 8)}};
  server.variables = {{.spec = {.name = "kernel", .shape = {3, 2}}, .rows = 3, .updates = 9}};
  manifest.servers = {server};
  return manifest;
}

TEST(CheckpointManifest, ComesBackAsItWasWritten) {
  TempDir folder;
  const CheckpointManifest written = Manifest("job", 4);
  ASSERT_OK(written.WriteTo(folder.path()));
  const absl::StatusOr<CheckpointManifest> read = CheckpointManifest::ReadFrom(folder.path());
  ASSERT_OK(read);
  EXPECT_EQ(read->name, written.name);
  EXPECT_EQ(read->number, 4);
  EXPECT_EQ(read->step, 1200);
  EXPECT_EQ(read->timeline, int64_t{3} << 32);
  ASSERT_EQ(read->servers.size(), 1u);
  EXPECT_EQ(read->servers[0].files, written.servers[0].files);
  EXPECT_EQ(read->servers[0].workers, written.servers[0].workers);
}

// A directory's name is bytes, in Latin-1 for example.
TEST(CheckpointManifest, TextThatIsNotUtf8IsWrittenWithReplacementCharacters) {
  TempDir folder;
  CheckpointManifest written = Manifest("job", 4);
  written.servers[0].folder = "/home/m\xfcller/ps-0";
  ASSERT_OK(written.WriteTo(folder.path()));
  const absl::StatusOr<CheckpointManifest> read = CheckpointManifest::ReadFrom(folder.path());
  ASSERT_OK(read);
  EXPECT_EQ(read->servers[0].folder, "/home/m\uFFFDller/ps-0");
  EXPECT_EQ(read->servers[0].files, written.servers[0].files);
}

TEST(CheckpointManifest, AnyChangedValueIsFound) {
  TempDir folder;
  ASSERT_OK(Manifest("job", 4).WriteTo(folder.path()));
  const std::string path = folder.Join(CheckpointManifest::kFileName);
  const std::string text = FileText(path);
  for (size_t i = 0; i < text.size(); ++i) {
    if (!std::isalnum(static_cast<unsigned char>(text[i]))) continue;
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    std::ofstream(path) << changed;
    EXPECT_FALSE(CheckpointManifest::ReadFrom(folder.path()).ok()) << i << " in " << changed;
  }
  std::ofstream(path) << text.substr(0, text.size() / 2);
  EXPECT_THAT(CheckpointManifest::ReadFrom(folder.path()),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("checkpoint.restore")));
  const std::string deep(300'000, '[');
  const std::string ends(300'000, ']');
  for (const std::string& damaged :
       {std::string(), "{\"format\":1,\"deep\":" + deep + ends + "}"}) {
    std::ofstream(path) << damaged;
    EXPECT_THAT(CheckpointManifest::ReadFrom(folder.path()),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("corrupt (it is ")));
  }
  // The texts are this program's own, and quote nothing of the file.
  const std::pair<std::string, std::string> cases[] = {
      {"{\"\xc2\x9b\xff", "it is not valid JSON at byte 5 of 5"},
      {text.substr(0, text.size() / 2), "its end: it is perhaps incomplete"},
      {"[1]", "it is JSON, but no object"},
      {"{}", "its key 'format' is missing"},
      {"{\"format\": []}", "its key 'format' has the wrong type, array"}};
  for (const auto& [damaged, why] : cases) {
    std::ofstream(path) << damaged;
    EXPECT_THAT(
        CheckpointManifest::ReadFrom(folder.path()),
        StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr(absl::StrCat(path, " is corrupt (")),
                                                    HasSubstr(why), Not(HasSubstr("exception")))));
  }
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_THAT(CheckpointManifest::ReadFrom(folder.path()),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("is a directory")));
  fs::remove(path);
  std::ofstream(path) << text;
  EXPECT_OK(CheckpointManifest::ReadFrom(folder.path()));
}

// Processor time of this thread to read a manifest of `servers` servers.
absl::Duration TimeToRead(int32_t servers) {
  TempDir folder;
  CheckpointManifest manifest = Manifest("job", 4);
  manifest.servers.resize(static_cast<size_t>(servers), manifest.servers[0]);
  for (int32_t i = 0; i < servers; ++i) {
    manifest.servers[static_cast<size_t>(i)].server = i;
    manifest.servers[static_cast<size_t>(i)].folder = absl::StrCat("/c/ps-", i);
  }
  EXPECT_OK(manifest.WriteTo(folder.path()));
  const auto now = [] {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return absl::DurationFromTimespec(time);
  };
  const absl::Duration before = now();
  const absl::StatusOr<CheckpointManifest> read = CheckpointManifest::ReadFrom(folder.path());
  const absl::Duration spent = now() - before;
  EXPECT_OK(read);
  EXPECT_TRUE(read.ok() && read->servers.size() == manifest.servers.size());
  return spent;
}

// Twenty times the servers take about twenty times as long, not four hundred times.
TEST(CheckpointManifest, TheTimeToReadOneGrowsAsItsServersDo) {
  const absl::Duration few = std::max(TimeToRead(1000), TimeToRead(1000));
  EXPECT_LT(TimeToRead(20'000), 100 * few);
}

// The checksum is valid: somebody wrote this manifest by hand.
TEST(CheckpointManifest, OneThatCannotBeIsRefused) {
  using Change = std::function<void(CheckpointManifest&)>;
  const std::vector<std::pair<std::string, Change>> changes = {
      {"its step is -1", [](auto& m) { m.step = -1; }},
      {"its number is 9223372036854775807",
       [](auto& m) { m.number = std::numeric_limits<int64_t>::max(); }},
      {"it names no server", [](auto& m) { m.servers.clear(); }},
      {"it names no file of ps:0", [](auto& m) { m.servers[0].files.clear(); }},
      {"it names CAIRN of ps:0 twice",
       [](auto& m) {
         m.servers[0].files.push_back({"CAIRN", 7, 1});
       }},
      {"a file of ps:0 has -7 bytes", [](auto& m) { m.servers[0].files[1].bytes = -7; }},
      {"it names ps:0 where ps:1 is due", [](auto& m) { m.servers.push_back(m.servers[0]); }},
      {"worker 0 has incarnation -1", [](auto& m) { m.servers[0].workers[0].incarnation = -1; }}};
  for (const auto& [why, change] : changes) {
    TempDir folder;
    CheckpointManifest manifest = Manifest("job", 4);
    change(manifest);
    ASSERT_OK(manifest.WriteTo(folder.path()));
    EXPECT_THAT(CheckpointManifest::ReadFrom(folder.path()),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr(why)));
  }
}

TEST(CheckpointManifest, EveryOneThatIsWrittenCanBeRead) {
  TempDir folder;
  CheckpointManifest manifest = Manifest("job", 4);
  std::vector<CheckpointWorker>& workers = manifest.servers[0].workers;
  workers.assign(5, {.worker = 1, .position = std::string(10 << 20, 'x')});  // 70 MB
  ASSERT_OK(manifest.WriteTo(folder.path()));
  const absl::StatusOr<CheckpointManifest> read = CheckpointManifest::ReadFrom(folder.path());
  ASSERT_OK(read);
  EXPECT_EQ(read->servers[0].workers, workers);
  workers.resize(20, workers.back());
  EXPECT_THAT(manifest.WriteTo(folder.path()),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("20 positions of workers")));
}

// Every command that shows checkpoints reads their manifests.
TEST(CheckpointManifest, OneThatIsNoFileOfItsSizeIsDamaged) {
  const TempDir directory;
  const std::string path = directory.Join(CheckpointManifest::kFileName);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(CheckpointManifest::ReadFrom(directory.path()),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("is a FIFO")));
  fs::remove(path);
  std::ofstream(path) << "{";
  fs::resize_file(path, uintmax_t{1} << 40);
  EXPECT_THAT(CheckpointManifest::ReadFrom(directory.path()),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("bytes that such a file may have")));
  fs::remove(path);
  EXPECT_THAT(CheckpointManifest::ReadFrom(directory.path()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(path)));
}

TEST(CheckpointFolders, OnesWithMoreStepsThanTheirSuccessorsAreKept) {
  CheckpointFolders folders;
  const auto add = [&](int64_t step) {
    folders.finished.push_back({.name = absl::StrCat(step), .step = step});
  };
  for (const int64_t step : {1000, 2000, 3000}) add(step);
  EXPECT_THAT(NotKept(folders, 2), ElementsAre("1000"));
  // The job restarted from scratch.
  for (const int64_t step : {600, 1200, 1800}) add(step);
  EXPECT_THAT(NotKept(folders, 3), ElementsAre("1000", "2000"));
  add(2400);
  EXPECT_THAT(NotKept(folders, 3), ElementsAre("1000", "2000", "600"));
  add(3000);
  EXPECT_THAT(NotKept(folders, 3), ElementsAre("1000", "2000", "3000", "600", "1200"));
}

// A directory that cannot be examined may have checkpoints.
TEST(CheckpointFolders, OnlyADirectoryThatDoesNotExistIsEmpty) {
  TempDir directory;
  EXPECT_TRUE(ListCheckpoints(directory.Join("nowhere"), "job")->finished.empty());
  fs::create_symlink("loop", directory.Join("loop"));
  const absl::Status looked = ListCheckpoints(directory.Join("loop"), "job").status();
  EXPECT_FALSE(looked.ok());
  EXPECT_THAT(std::string(looked.message()), HasSubstr(directory.Join("loop")));
  EXPECT_FALSE(IsFinished(directory.Join("nowhere")));
  EXPECT_TRUE(IsFinished(directory.Join("loop")));
}

TEST(CheckpointFolders, OnlyThisJobsNamesCountAndTheNewestIsLast) {
  TempDir directory;
  std::vector<std::string> names;
  for (const int64_t number : {2, 10, 1}) {
    const CheckpointManifest manifest = Manifest("job", number);
    fs::create_directory(directory.Join(manifest.name));
    ASSERT_OK(manifest.WriteTo(directory.Join(manifest.name)));
  }
  for (const char* other :
       {"job.step-0000000001-1234567", "job.step-0000000001-1234567X", "job.step-00000001-12345678",
        "other.step-0000000001-12345678", "job.step-0000000001-12345678.part", "notes"}) {
    fs::create_directory(directory.Join(other));
  }
  const CheckpointManifest of_another = Manifest("job.step", 1);
  fs::create_directory(directory.Join(of_another.name));
  fs::create_directory(directory.Join("job.step-0000000001-12345678"));
  const auto folders = ListCheckpoints(directory.path(), "job");
  ASSERT_OK(folders);
  ASSERT_EQ(folders->finished.size(), 3u);
  EXPECT_EQ(folders->finished.back().number, 10);
  EXPECT_THAT(folders->unfinished, ElementsAre("job.step-0000000001-12345678"));
  EXPECT_TRUE(folders->damaged.empty());

  const std::string folder = directory.Join(folders->finished.back().name);
  ASSERT_OK(RemoveManifest(folder));
  std::ofstream(folder + "/MANIFEST.json.part") << "half";
  ASSERT_OK(RemoveEmptyCheckpoint(folder));
  EXPECT_FALSE(fs::exists(folder));
  fs::create_directory(directory.Join("job.step-0000000001-12345678/ps-0"));
  EXPECT_FALSE(RemoveEmptyCheckpoint(directory.Join("job.step-0000000001-12345678")).ok());
}

}  // namespace
}  // namespace cairn
