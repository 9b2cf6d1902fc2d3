"""Documents in files: text, JSON, CSV or Parquet, compressed or not, anywhere."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from itertools import accumulate, pairwise
from math import ceil
from typing import Any, cast

from streamlda.errors import SourceError, failure
from streamlda.stream.listing import FilePart, Paths, StoredFile, find_files
from streamlda.stream.source import WHOLE, Position, Progress, RecordBatch
from streamlda_connectors import checks, records
from streamlda_connectors.compressed import EXTRAS, BlockReader
from streamlda_connectors.csv_files import names_text, open_csv
from streamlda_connectors.encodings import name_kind
from streamlda_connectors.json_files import is_spread, open_json
from streamlda_connectors.lines import LineSplitter, RecordStream, json_parser, parse_text
from streamlda_connectors.parquet import ParquetBlocks, count_group_rows

#: Most skipped files that are named.
MOST_NAMED = 5

#: Said of a table that is read as lines of text.
LINES = "is read as lines of text: name the format of a table (--format csv or json)"

#: Said of JSON that is not a record a line.
NO_LINES = "has no object on a line of its own: name its format (--format json)"

#: Records that are looked through at once for a time that tells day from month.
AHEAD_RECORDS = 1000


class FileSource:
    """Read documents from files, one after the other.

    The list of files is fixed when the source is made. Files are read in blocks, never whole:
    memory O(`max_document_bytes` + one poll). Bad records are counted as rejects, with the file and
    the number of the record, and reading continues; ``records.REASONS`` has the
    reasons. A blank line is no document, though lines are numbered with it; an empty field is one.
    Before compressed data breaks off, everything whole is delivered; then there is one reject, and
    the next file is read. Resuming in a compressed file decompresses it up to the position.

    Parameters
    ----------
    paths : str, path or iterable of them
        Files, directories (all files below, sorted), globs, or fsspec URLs
        (``s3://bucket/*.jsonl.gz``); hidden files only by name.
    format : {"auto", "text", "file", "jsonl", "json", "csv", "parquet"}
        By default ``"auto"``, which goes by each name without the compression's ending: .jsonl,
        .ndjson (JSON Lines), .json (lines too, or one array or table, read whole), .csv, .tsv,
        .parquet. Anything else is text: in folders one document a file (``"file"``; its name is
        the id), named or by a glob one document a line (``"text"``).
    include : list of str, optional
        Patterns (``"*.json"``), one of which the files of a directory or glob must match at the end
        of their path; without any, all are read.
    delimiter : str, optional
        Delimiter of CSV: an ASCII character or ``"tab"``. Without it, the first of comma, tab,
        semicolon and bar by which the header has the `text_field` (in .tsv files, tab first).
    part : (int, int), optional
        Part of the one file, from `parts`; records are numbered in it.
    **reading
        `time_format`, and as in `streamlda_connectors.records.ReadOptions`. What ``01/06/2025``
        means is decided by all values of the files together, an encoding by the first 4 MiB. Lines
        may end in carriage returns, unless the encoding is None.

    Raises
    ------
    SourceError
        For a path that is missing, unreadable, named twice or without files, and for a CSV or
        Parquet file without the column. Only the first remote file of each format is opened
        here; a later one without the column is counted as a reject.
    InvalidSettingError, MissingExtraError
        For an option out of range, and for mail and HTML by their names (.mbox, .eml, .html); if
        zstandard or pyarrow is needed and not installed.
    """

    def __init__(
        self,
        paths: Paths,
        *,
        format: str = "auto",
        include: Sequence[str] = (),
        delimiter: str | None = None,
        part: tuple[int, int] | None = None,
        **reading: Any,
    ) -> None:
        delimiter = "\t" if delimiter == "tab" else delimiter
        single = delimiter is None or (len(delimiter) == 1 and delimiter.isascii())
        checks.check(
            single and delimiter not in ("\r", "\n", '"', " "), "delimiter", delimiter=delimiter
        )
        self._options = records.ReadOptions.of(
            delimiter=delimiter, read_ahead=self._read_times, **reading
        )
        #: Sentences for the next batch.
        self._notes: list[str] = []
        self._files = find_files(paths, format, include)
        if part is not None:
            (whole,) = self._files
            self._files = [replace(whole, part=part)]
        self._files = self._check_files()
        for file in self._files:
            self._options.check_format(file.format)
        listed = [(f.name, f.format, f.compression, f.part) for f in self._files]
        self._digest = blake2b(repr(listed).encode(), digest_size=8).hexdigest()
        self._index = self._record = self._offset = 0
        #: Records of all files that were handed out.
        self._records = 0
        self._reader: FileReader | None = None
        self._closed = False

    def _check_files(self) -> list[StoredFile]:
        """Return the files to read: those of a folder or glob that hold no text are skipped."""
        checked, kept, skipped = set(), [], []
        for file in self._files:
            if file.compression in EXTRAS:
                checks.import_extra(*EXTRAS[file.compression])
            kind = ""
            if file.local or file.format not in checked:
                checked.add(file.format)
                kind = self._check_file(file)
            if kind:
                skipped.append(f"{file.name} ({kind})")
            else:
                kept.append(file)
        self._notes += _describe_kinds(kept, skipped)
        return kept

    def _check_file(self, file: StoredFile) -> str:
        """Return the kind of a file of a folder or glob that holds no text; raise for others."""
        try:
            # The first record of a private file must not decide whether there are others.
            looks = file.format != "parquet" and self._options.encoding is not None
            head = file.read_head() if looks and file.compression is None else b""
            kind = name_kind(file.name, head) if looks else None
            if kind is not None and file.listed:
                return kind[0]
            if kind is not None:
                rule, about = "the file holds neither text nor a table", {"name": file.name}
                raise failure(rule, **about, kind=kind[0], remedy=kind[1], error=SourceError)
            if file.format in ("csv", "parquet"):
                FileReader(file, self._options, 0, 0).close()
        except records.MissingColumn as missing:
            text_field = self._options.text_field
            values: dict[str, Any] = {"text_field": text_field, "name": file.name}
            if hint := records.suggest_header(text_field, list(missing.fields)):
                values["hint"] = hint
            # The first line of a file without a header is a document.
            if hint != records.NO_HEADER:
                values["columns"] = list(records.shorten_names(missing.fields))
            raise checks.fault("column", **values) from missing
        except OSError as error:
            if isinstance(error, SourceError):
                raise
            raise checks.unreadable(file.name, error) from error
        except records.Rejection:
            pass  # It is counted when it is read.
        return ""

    def poll(self, max_records: int, timeout_seconds: float = 1.0) -> RecordBatch:
        """Return the next records; after an error, polling tries again behind the last one."""
        checks.check_open(self._closed)
        batch, before = records.BatchBuilder(max_records, timeout_seconds), self.position()
        try:
            while self._index < len(self._files) and self._read_file(batch):
                self._leave_file(self._index + 1)
                if batch.full or batch.late:
                    break
        except BaseException:
            self._leave_file(before["file"], before["record"], before["offset"])
            raise
        batch.notes += self._notes
        self._notes = []
        self._records += len(batch.texts)
        return batch.build(self._options, exhausted=self._index == len(self._files))

    def _read_file(self, batch: records.BatchBuilder) -> bool:
        """Add documents of the current file; return whether it has ended."""
        file = self._files[self._index]
        try:
            if self._reader is None:
                self._reader = FileReader(file, self._options, self._record, self._offset)
                if self._reader.note:
                    self._notes.append(f"{file.name} {self._reader.note}")
            ended = self._reader.take(batch)
        except records.Rejection as rejected:
            batch.extend(file.name, self._record + 1, [records.Rejection(rejected.reason)], 0)
            self._notes += [f"{file.name} {rejected.note}"] if rejected.note else []
            _note_break(batch, file.name, rejected.reason, file.size)
            return True
        except OSError as error:
            at = self.position()
            self._leave_file(self._index, at["record"], at["offset"])
            # Records that were read are returned; the next poll meets the error again.
            if not batch.empty:
                return False
            if isinstance(error, SourceError):
                raise
            raise checks.unreadable(file.name, error) from error

        reader = self._reader
        if ended and reader.fault is not None:
            # How much is missing of a file that was cut off is not known.
            size = file.size if file.part is None else file.part[1] - file.part[0]
            read = reader.count_bytes()
            behind = None if size is None else size - read + ceil(read * reader.unread)
            _note_break(batch, file.name, reader.fault, behind or size)
        elif ended and not reader.records.record and file.part is None:
            batch.notes.append(f"{file.name} has no record")
        return ended

    def _read_times(self) -> Iterator[object]:
        """Yield the values of the time field of all files, or of the file of a part."""
        values: list[object] = []
        options = replace(self._options, read_time=cast(Any, values.append))
        for file in self._files:
            try:
                reader = FileReader(replace(file, part=None), options, 0, 0)
            except records.Rejection:
                continue
            with closing(reader):
                ended = False
                while not ended:
                    ended = reader.take(records.BatchBuilder(AHEAD_RECORDS, 0))
                    yield from values
                    values.clear()

    def _leave_file(self, index: int, record: int = 0, offset: int = 0) -> None:
        reader, self._reader = self._reader, None
        self._index, self._record, self._offset = index, record, offset
        if reader is not None:
            reader.close()

    def position(self) -> Position:
        """Return where the next poll resumes: file, record, byte, and a digest of the list."""
        here = None if self._reader is None else self._reader.records
        return {
            "file": self._index,
            "record": self._record if here is None else here.record,
            "offset": self._offset if here is None else here.offset,
            "list": self._digest,
            "records": self._records,
        }

    def passed(self) -> dict[str, int]:
        """Return how many records of all files were read, as one part."""
        return {WHOLE: self._records}

    def seek(self, position: Position) -> None:
        """Resume from a position of this process or an earlier one, of the same list of files."""
        index, record, offset = (
            checks.count_at(position, key) for key in ("file", "record", "offset")
        )
        made_with = position.get("list")
        same = made_with == self._digest
        checks.check(same, "other files", list=self._digest, list_of_position=made_with)
        if index > len(self._files):
            raise checks.not_a_position("file")
        self._records = checks.count_at(position, "records")
        self._leave_file(index, record, offset)

    def progress(self) -> Progress:
        """Return the stored bytes read so far, of all; of Parquet, in proportion to the rows."""
        sizes = [file.size for file in self._files]
        done = sum(size or 0 for size in sizes[: self._index])
        if self._reader is not None:
            read = self._reader.count_bytes()
            done += min(read, sizes[self._index] or read)
        return Progress(done, None if None in sizes else sum(map(int, filter(None, sizes))), "B")

    def parts(self, most_bytes: int) -> list[FilePart]:
        """Return the files in order, those cut that are larger and can be read from the middle."""
        encoding = self._options.encoding
        return [part for file in self._files for part in cut_into_parts(file, most_bytes, encoding)]

    def close(self) -> None:
        """Close the file being read. Closing twice is allowed."""
        at = self.position()
        self._leave_file(self._index, at["record"], at["offset"])
        self._closed = True


def _note_break(
    batch: records.BatchBuilder, name: str, reason: str, lost_bytes: int | None
) -> None:
    batch.lost_bytes += lost_bytes or 0
    lost = "" if lost_bytes is None else f", with at most {lost_bytes:,} stored bytes"
    batch.notes.append(f"{name} broke off ({reason}){lost}")


def _describe_kinds(files: Sequence[StoredFile], names: Sequence[str]) -> list[str]:
    """Return what to say of folders and globs that hold files of several kinds."""
    kinds = Counter(file.format for file in files if file.listed)
    said = []
    if len(kinds) > 1:
        formats = ", ".join(f"{number:,} as {kind}" for kind, number in kinds.most_common())
        said.append(f"files of several kinds are read: {formats}")
    if names:
        more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
        said.append(f"files without text are skipped: {', '.join(names[:MOST_NAMED])}{more}")
    return said


def cut_into_parts(file: StoredFile, most_bytes: int, encoding: str | None) -> list[FilePart]:
    """Cut a file into parts of about `most_bytes`, if it can be read from the middle."""
    size, whole = file.size or 0, [FilePart(file, None, file.size or 0)]
    if size <= most_bytes:
        return whole
    if file.format in ("text", "jsonl") and file.compression is None:
        with closing(BlockReader(file, encoding)) as reader:
            if not reader.encoding.is_stored:
                return whole
        number = -(-size // most_bytes)
        ends = [size * n // number for n in range(number + 1)]
        return [FilePart(file, (a, b), b - a) for a, b in pairwise(ends)]
    if file.format == "parquet":
        rows, ends = [0, *accumulate(count_group_rows(file))], [0]
        for group in range(1, len(rows)):
            last = group + 1 == len(rows)
            if last or (rows[group] - rows[ends[-1]]) * size >= most_bytes * rows[-1]:
                ends.append(group)
        return [
            FilePart(file, (a, b), size * (rows[b] - rows[a]) // max(1, rows[-1]))
            for a, b in pairwise(ends)
        ] or whole
    return whole


class FileReader:
    """The records of one open file behind `record` of them, which end at byte `offset`.

    Raises `Rejection` if no record of the file can be read; `record` is 0 then.
    """

    #: The reason, where it is damaged, and the share of the bytes read that lies behind it.
    fault: str | None = None
    unread = 0.0

    def __init__(
        self, file: StoredFile, options: records.ReadOptions, record: int, offset: int
    ) -> None:
        self._name, self._ended = file.name, False
        self._blocks = blocks = (
            ParquetBlocks(file, options, record)
            if file.format == "parquet"
            else BlockReader(file, options.encoding)
        )
        start, first = 0, b""
        parse: records.Parser = parse_text
        splitter = LineSplitter(options.max_document_bytes)
        try:
            if isinstance(blocks, ParquetBlocks):
                parse = json_parser(blocks.options)
            elif file.format == "csv":
                splitter, parse, start, first = open_csv(blocks, options, file.delimiter)
            elif file.format == "json":
                open_json(blocks, options)
            elif file.format == "file":
                splitter = LineSplitter(options.max_document_bytes, whole=True)
                parse = partial(parse_text, name=file.name)
            elif file.format == "text" and names_text(blocks.head, options):
                blocks.notes.append(LINES)
            elif file.format == "jsonl" and options.encoding is not None:
                blocks.notes += [NO_LINES] * is_spread(blocks.head)
            if file.format in ("json", "jsonl"):
                parse = json_parser(options)
        except BaseException as error:
            blocks.close()
            if isinstance(error, records.Rejection):
                error.note = " and ".join(blocks.notes)
            raise
        offset = max(offset, start, blocks.begin)
        self.records = RecordStream(file.location, splitter, parse, record, offset)
        self.records.put([first] if first else [])
        #: How the file is read, if that has to be said.
        self.note = " and ".join(blocks.notes)
        self._behind = blocks.skip(offset) if isinstance(blocks, BlockReader) else 0

    def take(self, batch: records.BatchBuilder) -> bool:
        """Add documents to `batch`; return whether the file has ended, at damage too."""
        while True:
            self.records.take(batch)
            if self._ended and self.records.empty:
                return True
            if batch.full or (batch.late and batch.blocks):
                return False
            batch.blocks += 1
            try:
                self._fill()
            except records.Rejection as rejected:
                self.fault = rejected.reason
                batch.extend(self.records.location, self.records.record + 1, [rejected], 0)

    def _fill(self) -> None:
        """Queue the records of the next block, or note the end; `Rejection` where it is damaged."""
        try:
            block = self._blocks.read()
        except records.Rejection as rejected:
            # Behind other damage may be any number of bytes.
            self._end(bytes_known=rejected.reason == "not-json")
            raise
        if not block:
            self._end(bytes_known=True)
            self.fault = self.records.finish()
            return
        dropped = min(self._behind, len(block))
        self._behind -= dropped
        if dropped < len(block):
            self.records.feed(block[dropped:])

    def _end(self, *, bytes_known: bool) -> None:
        if self._behind:
            raise checks.fault("shorter", name=self._name, bytes_missing=self._behind)
        self._ended = True
        if bytes_known:
            behind = self.records.fed - self.records.consumed
            self.unread = behind / max(1, self.records.fed)

    def count_bytes(self) -> int:
        """Return how many bytes of the file were read; of Parquet, in proportion to the rows."""
        return self._blocks.count_bytes()

    def close(self) -> None:
        """Close the file."""
        self._blocks.close()
