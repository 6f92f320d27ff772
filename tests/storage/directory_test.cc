// The folders in which a store is opened. A refusal gives the reason and leaves every byte
// unchanged.
#include "storage/directory.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/recorder.h"
#include "tests/support/file_text.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace cairn {

// After so many more entries, reading a directory fails once; -1: it does not.
thread_local int entries_before_error = -1;

namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void WriteFile(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// Every file below `directory` with its bytes. Skips LOCK: this process may hold a lock on it,
// which closing the file would release.
std::map<std::string, std::string> Contents(const std::string& directory) {
  std::map<std::string, std::string> contents;
  if (!fs::is_directory(directory)) return contents;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(directory)) {
    const bool readable = entry.is_regular_file() && entry.path().filename() != "LOCK";
    contents[entry.path()] = readable ? FileText(entry.path()) : "";
  }
  return contents;
}

// Names that only one of them has, or whose contents differ.
std::vector<std::string> Changed(const std::map<std::string, std::string>& before,
                                 const std::map<std::string, std::string>& after) {
  std::vector<std::string> changed;
  for (const auto& [name, bytes] : after) {
    if (!before.contains(name) || before.at(name) != bytes) changed.push_back(name);
  }
  for (const auto& [name, bytes] : before) {
    if (!after.contains(name)) changed.push_back(name);
  }
  return changed;
}

class DirectoryTest : public ::testing::Test {
 protected:
  void MakeStore() { ASSERT_OK(OpenStore(directory_)); }
  // A first start killed just before its marker is renamed; the log is written after that.
  void InterruptFirstStart() {
    MakeStore();
    fs::rename(directory_ + "/CAIRN", directory_ + "/CAIRN.new");
    fs::remove(directory_ + "/LOG");
  }
  // Expects that opening is refused with `code` and a message that contains `text`, and changes
  // nothing.
  void ExpectRefused(absl::StatusCode code, const std::string& text, int32_t server_index = 0) {
    const auto before = Contents(directory_);
    EXPECT_THAT(OpenStore(directory_, server_index),
                StatusIs(code, AllOf(HasSubstr(directory_), HasSubstr(text))));
    EXPECT_THAT(Changed(before, Contents(directory_)), IsEmpty());
  }

  TempDir temp_;
  const std::string directory_ = temp_.Join("data");
};

// The rest of such a directory is not absent: a checkpoint's list of files, for example, must have
// all of them.
TEST_F(DirectoryTest, AFolderThatCannotBeReadToItsEndIsAnError) {
  ASSERT_OK(ListFolder(temp_.path()));
  entries_before_error = 1;
  EXPECT_THAT(ListFolder(temp_.path()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(temp_.path())));
  EXPECT_EQ(entries_before_error, -1);
}

TEST_F(DirectoryTest, AnAbsentFolderIsCreatedAndMarked) {
  MakeStore();
  EXPECT_EQ(FileText(directory_ + "/CAIRN"), "cairn stripe store\nformat: 1\nserver_index: 0\n");
  EXPECT_FALSE(fs::exists(directory_ + "/CAIRN.new"));
}

TEST_F(DirectoryTest, AnEmptyFolderIsAcceptedEvenWithLostAndFound) {
  fs::create_directories(directory_ + "/lost+found");
  MakeStore();
  EXPECT_TRUE(fs::exists(directory_ + "/lost+found"));
}

TEST_F(DirectoryTest, AFinishedStoreIsOpenedDespiteOtherFilesInItsFolder) {
  MakeStore();
  WriteFile(directory_ + "/notes.txt", "mine");
  MakeStore();
  EXPECT_EQ(FileText(directory_ + "/notes.txt"), "mine");
}

TEST_F(DirectoryTest, AMissingParentIsNotFound) {
  EXPECT_THAT(OpenStore(directory_ + "/deeper"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("parent")));
  EXPECT_FALSE(fs::exists(directory_));
}

TEST_F(DirectoryTest, AFileIsNotAFolder) {
  WriteFile(directory_, "text");
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "not a directory");
}

TEST_F(DirectoryTest, AFolderWithForeignFilesIsRefusedByTheirNames) {
  fs::create_directory(directory_);
  WriteFile(directory_ + "/thesis.tex", "years of work");
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "thesis.tex");
}

// Opening it would compact and rewrite another program's database.
TEST_F(DirectoryTest, AnotherProgramsRocksDbIsForeign) {
  MakeStore();
  fs::remove(directory_ + "/CAIRN");
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "not a Cairn store");
}

TEST_F(DirectoryTest, AnotherServersIndexIsRefusedAndBothAreNamed) {
  MakeStore();
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "belongs to ps:0, this is ps:3", 3);
}

// The marker can be copied from another folder; the database has the index too, under a checksum.
TEST_F(DirectoryTest, AMarkerThatContradictsTheDatabaseIsRefused) {
  MakeStore();
  WriteFile(directory_ + "/CAIRN", "cairn stripe store\nformat: 1\nserver_index: 3\n");
  EXPECT_THAT(OpenStore(directory_, 3),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("database belongs to ps:0, this is ps:3")));
}

TEST_F(DirectoryTest, AnotherFormatIsRefusedAndBothAreNamed) {
  MakeStore();
  for (const char* format : {"0", "2", "4000000000"}) {
    WriteFile(directory_ + "/CAIRN",
              absl::StrCat("cairn stripe store\nformat: ", format, "\nsomething: else\n"));
    ExpectRefused(absl::StatusCode::kFailedPrecondition,
                  absl::StrCat("has format ", format, ", this program reads and writes format 1"));
  }
}

TEST_F(DirectoryTest, ACorruptMarkerIsDataLossAndNamesTheFile) {
  MakeStore();
  for (const std::string& text : {std::string(), std::string(5000, 'x'), std::string(64, '\0'),
                                  std::string("cairn stripe store\nformat: one\n"),
                                  std::string("cairn stripe store\nformat: 1\nserver_index: \n")}) {
    WriteFile(directory_ + "/CAIRN", text);
    ExpectRefused(absl::StatusCode::kDataLoss, "/CAIRN is corrupt");
  }
}

// A new database here would look like a start with nothing to restore.
TEST_F(DirectoryTest, AMissingDatabaseBehindAMarkerIsDataLoss) {
  MakeStore();
  fs::remove_all(directory_ + "/db");
  ExpectRefused(absl::StatusCode::kDataLoss, "db/CURRENT is missing");
}

TEST_F(DirectoryTest, AMissingCurrentFileBehindAMarkerIsDataLoss) {
  MakeStore();
  fs::remove(directory_ + "/db/CURRENT");
  ExpectRefused(absl::StatusCode::kDataLoss, "db/CURRENT is missing");
}

TEST_F(DirectoryTest, AnInterruptedFirstStartIsContinued) {
  fs::create_directory(directory_);
  WriteFile(directory_ + "/CAIRN.new", "cairn str");  // truncated during the write
  InterruptFirstStart();
  MakeStore();
  EXPECT_TRUE(fs::exists(directory_ + "/CAIRN"));
}

TEST_F(DirectoryTest, AnInterruptedFirstStartOfAnotherServerIsRefused) {
  InterruptFirstStart();
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "belongs to ps:0, this is ps:1", 1);
}

TEST_F(DirectoryTest, InUseByThisProcessIsRefusedWithoutHarmToTheFirstUser) {
  const auto store = OpenStore(directory_);
  ASSERT_OK(store);
  ExpectRefused(absl::StatusCode::kFailedPrecondition,
                absl::StrCat("in use by process ", getpid()));
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "in use");  // the lock was not released
  EXPECT_OK(WriteImage(**store, {1, 0, 0}, 1, "image"));
}

// The lock is on the file, not on its name.
TEST_F(DirectoryTest, AReplacedMarkerEndsTheStoresWrites) {
  auto store = OpenStore(directory_);
  ASSERT_OK(store);
  ASSERT_OK(WriteImage(**store, {1, 0, 0}, 1, "image"));
  ASSERT_OK((*store)->Sync());
  fs::copy_file(directory_ + "/CAIRN", directory_ + "/CAIRN.copy");
  fs::rename(directory_ + "/CAIRN.copy", directory_ + "/CAIRN");
  EXPECT_OK(WriteImage(**store, {1, 0, 0}, 2, "image"));
  EXPECT_THAT((*store)->Sync(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("/CAIRN was replaced")));
}

// Whatever the umask is.
TEST_F(DirectoryTest, OthersCannotReadAStore) {
  const mode_t before = umask(0);
  MakeStore();
  fs::create_directory(temp_.Join("made"));
  ASSERT_OK(OpenStore(temp_.Join("made")));
  umask(before);
  EXPECT_EQ(fs::status(directory_).permissions(), fs::perms::owner_all);
  // A folder that the user created keeps its mode; the rows in it are accessible only to the owner.
  EXPECT_EQ(fs::status(temp_.Join("made/db")).permissions(), fs::perms::owner_all);
  constexpr fs::perms kOthers = fs::perms::others_all | fs::perms::group_write;
  for (const char* name : {"CAIRN", "LOG"}) {
    EXPECT_EQ(fs::status(temp_.Join(absl::StrCat("made/", name))).permissions() & kOthers,
              fs::perms::none)
        << name;
  }
}

TEST_F(DirectoryTest, ADanglingLinkIsNamed) {
  fs::create_symlink(temp_.Join("gone"), directory_);
  ExpectRefused(absl::StatusCode::kNotFound, "is a link to a directory that is missing: create");
}

// Runs `child` in a child process and returns its exit status.
int InChild(const std::function<int()>& child) {
  const pid_t pid = fork();
  if (pid == 0) _exit(child());
  int status = -1;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(DirectoryTest, InUseByAnotherProcessIsRefusedWithItsPid) {
  MakeStore();
  int ready[2];
  int done[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(done), 0);
  const pid_t pid = fork();
  if (pid == 0) {  // holds RocksDB's lock until the test ends
    close(done[1]);
    struct flock lock {};
    lock.l_type = F_WRLCK;
    const int fd = open((directory_ + "/db/LOCK").c_str(), O_RDWR);
    const char result = fcntl(fd, F_SETLK, &lock) == 0 ? 'y' : 'n';
    char ignored = 0;
    const bool told = write(ready[1], &result, 1) == 1 && read(done[0], &ignored, 1) == 0;
    _exit(told ? 0 : 1);
  }
  close(done[0]);
  char locked = 0;
  ASSERT_EQ(read(ready[0], &locked, 1), 1);
  EXPECT_EQ(locked, 'y');
  ExpectRefused(absl::StatusCode::kFailedPrecondition, absl::StrCat("in use by process ", pid));
  close(done[1]);
  int status = -1;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  close(ready[0]);
  close(ready[1]);
  MakeStore();  // free again
}

// A "stale lock" that is deleted under a running server: RocksDB checks nothing else. The child
// process has none of RocksDB's threads, so it takes only the folder's lock.
TEST_F(DirectoryTest, InUseIsRefusedAlthoughTheDatabasesLockWasDeleted) {
  auto store = OpenStore(directory_);
  ASSERT_OK(store);
  ASSERT_TRUE(fs::remove(directory_ + "/db/LOCK"));
  const std::string holder = absl::StrCat("in use by process ", getpid());
  const auto lock_in_child = [&] {
    return InChild([&] {
      const auto lock = LockDirectory(directory_, DirectoryState::kExisting);
      if (lock.ok()) return 0;
      return absl::StrContains(lock.status().message(), holder) ? 1 : 2;
    });
  };
  EXPECT_EQ(lock_in_child(), 1);
  ASSERT_OK((*store)->Close());
  EXPECT_EQ(lock_in_child(), 0);
  const auto lock = LockDirectory(directory_, DirectoryState::kExisting);
  ASSERT_OK(lock);
  ExpectRefused(absl::StatusCode::kFailedPrecondition, holder);
}

// Permissions do not bind root, so a child process that gives up root opens the store.
class ReadOnlyTest : public DirectoryTest {
 protected:
  static constexpr uid_t kNobody = 65534;
  absl::StatusCode OpenUnprivileged() {
    return static_cast<absl::StatusCode>(InChild([&] {
      if (geteuid() == 0 && (setgid(kNobody) != 0 || setuid(kNobody) != 0)) return 255;
      const absl::Status status = OpenStore(directory_).status();
      const bool named = absl::StrContains(status.message(), directory_) &&
                         absl::StrContains(status.message(), "let this user");
      return named ? static_cast<int>(status.code()) : 254;
    }));
  }
};

TEST_F(ReadOnlyTest, AReadOnlyParentIsPermissionDenied) {
  ASSERT_EQ(chmod(temp_.path().c_str(), 0555), 0);
  EXPECT_EQ(OpenUnprivileged(), absl::StatusCode::kPermissionDenied);
  ASSERT_EQ(chmod(temp_.path().c_str(), 0755), 0);
}

TEST_F(ReadOnlyTest, AReadOnlyStoreIsPermissionDeniedAndUnchanged) {
  MakeStore();
  ASSERT_EQ(chmod(temp_.path().c_str(), 0755), 0);
  ASSERT_EQ(chmod(directory_.c_str(), 0555), 0);
  const auto before = Contents(directory_);
  EXPECT_EQ(OpenUnprivileged(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(Changed(before, Contents(directory_)), IsEmpty());
  ASSERT_EQ(chmod(directory_.c_str(), 0755), 0);
}

TEST(ErrnoStatus, CodesFollowTheCauseAndTextsGiveTheNextStep) {
  for (const int error : {ENOSPC, EDQUOT, EFBIG}) {
    EXPECT_THAT(ErrnoStatus(error, "write x"),
                StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("free space")));
  }
  for (const int error : {EACCES, EPERM, EROFS}) {
    EXPECT_THAT(ErrnoStatus(error, "write x"),
                StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("let this user")));
  }
  EXPECT_THAT(ErrnoStatus(EIO, "write x"),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("write x: Input/output error")));
}

TEST(LockHolder, AnUnlockedFileHasNone) {
  TempDir temp;
  EXPECT_FALSE(LockHolder(temp.Join("absent")).has_value());
  WriteFile(temp.Join("free"), "");
  EXPECT_FALSE(LockHolder(temp.Join("free")).has_value());
}

}  // namespace
}  // namespace cairn

// In place of the C library's.
extern "C" __attribute__((visibility("default"))) dirent* readdir(DIR* directory) {
  int& left = cairn::entries_before_error;
  if (left >= 0 && left-- == 0) {
    errno = EIO;
    return nullptr;
  }
  static const auto next = reinterpret_cast<decltype(&readdir)>(dlsym(RTLD_NEXT, "readdir"));
  return next(directory);
}
