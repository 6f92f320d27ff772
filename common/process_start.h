// Process settings that every program needs before it opens a file or starts a thread.
#pragma once

namespace cairn {

// Call it at the beginning of main; `program` is the program's name in messages and must stay
// valid.
//
// Replaces a closed standard input, output or error by /dev/null, opened so that using it still
// fails. Otherwise the next file to be opened would get its number, and printed text would go into
// that file. Makes exceeding a file size limit an error of the write (EFBIG) instead of the end of
// the process. If memory or threads run out in code that cannot return an error, the process ends
// with exit status 1 after a last line on stderr. Other uncaught exceptions abort the process.
void PrepareProcess(const char* program);

}  // namespace cairn
