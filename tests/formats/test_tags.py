"""Tables of tags: what is found by itself, what is refused, and what comes back."""

from __future__ import annotations

import csv
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.datasets import dataset, known_labels, label_states, quick, splits
from formats.layouts.pictures import write_picture
from tagfill import formats
from tagfill.errors import DatasetError, TagfillError, TagfillWarning
from tagfill.formats import tags
from tagfill.progress import SILENT


def table(tmp_path, text, name="tags.csv", **options):
    path = tmp_path / name
    path.write_bytes(text.encode())
    return tags.parse(path, **options)


def given_tags(found):
    return {photo.image: photo.states for photo in found.photos}


BOTH = {"a.jpg": {"cat": True, "dog": True}, "b.jpg": {"cat": True}}


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("image,tag\na.jpg,cat\na.jpg,dog\nb.jpg,cat\n", "'tag', one per row"),
        ("file;keywords\na.jpg;cat, dog\nb.jpg;cat\n", "'keywords', separated by ','"),
        ('Photo,Tags\na.jpg,"cat, dog"\nb.jpg,cat\n', "'Tags', separated by ','"),
        ("file_name\tlabel\na.jpg\tcat|dog\nb.jpg\tcat\n", "'label', separated by '|'"),
        ("class,path\ncat ;dog,a.jpg\n cat,b.jpg\n,\n", "'class', separated by ';'"),
        ('image,tags\na.jpg,"[""cat"", ""dog""]"\nb.jpg,"[""cat""]"\n', "'tags', as JSON lists"),
        ("image,tags\na.jpg,\"['cat', 'dog']\"\nb.jpg,['cat']\n", "'tags', as JSON lists"),
        ("x,cat,dog\na.jpg,1,1\nb.jpg,1,\n", "one column per tag"),
        ("index,img,cat,dog\n0,a.jpg,True,yes\n1,b.jpg,1.0,NaN\n", "one column per tag"),
        ("x;cat;dog\na.jpg;WAHR;✓\nb.jpg;1,0;-\n", "one column per tag"),
        ("image,tags\na.jpg,\"{'dog', 'cat'}\"\nb.jpg,{'cat'}\n", "'tags', as JSON lists"),
        ("image,tag 1,tag 2\na.jpg,cat,dog\nb.jpg,cat,\n", "'tag 1', 'tag 2', one per cell"),
        ("image,tags\na.jpg,cat,dog\nb.jpg,cat\n", "'tags', separated by ','"),
        ("sep=;\r\nimage;tags\r\na.jpg;cat,dog\r\nb.jpg;cat\r\n", "'tags', separated by ','"),
    ],
)
def test_the_layout_is_found(tmp_path, text, where):
    found = table(tmp_path, text)
    assert given_tags(found) == BOTH
    first, photos, its_tags = str(found).splitlines()[:3]
    assert first == "tags: 2 photos, 2 tags, 1.5 per photo"
    assert photos.split() == ["photos", repr(found.options["image_column"])]
    assert its_tags == f"  tags       {where}"


def test_the_options_found_read_the_table_in_the_same_way(tmp_path):
    text = 'file;keywords;split\na.jpg;"cat, dog";valid\nb.jpg;cat;train\n'
    found = table(tmp_path, text)
    assert found.options == {
        "image_column": "file",
        "delimiter": ";",
        "tag_column": "keywords",
        "separator": ",",
        "split_column": "split",
    }
    assert table(tmp_path, text, **found.options) == found
    assert {photo.image: photo.split for photo in found.photos} == {"a.jpg": "val", "b.jpg": "train"}
    assert given_tags(table(tmp_path, text, separator="none"))["a.jpg"] == {"cat, dog": True}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_the_encodings_of_spreadsheets_are_read(tmp_path, encoding):
    (tmp_path / "tags.csv").write_bytes("image;tags\r\nä.jpg;Bär\r\n".encode(encoding))
    found = tags.parse(tmp_path / "tags.csv")
    assert given_tags(found) == {"ä.jpg": {"Bär": True}}
    assert ["read as Windows-1252" in text for text in found.warnings] == [True] * (encoding == "cp1252")


def test_numbered_columns_are_read_again_with_the_options_found(tmp_path):
    text = "image,tag1,tag2,note\na.jpg,cat,dog,x\nb.jpg,cat,,y\n"
    found = table(tmp_path, text)
    assert (found.options["tag_column"], found.ignored) == ("tag1,tag2", ("note",))
    assert table(tmp_path, text, **found.options) == found


def test_tables_in_memory_are_read_without_a_file():
    columns = {"image": ["a.jpg", "b.jpg"], "tags": [["cat", "dog "], ["cat"]], "score": [0.5, None]}
    found = tags.parse(pa.table(columns))
    assert given_tags(found) == BOTH
    assert found.ignored == ("score",)
    assert given_tags(tags.parse({"image": ["a.jpg", "b.jpg"], "tag": ["cat;dog", "cat"]})) == BOTH
    with pytest.raises(DatasetError, match="The table cannot be read"):
        tags.parse(17)


def test_parquet(tmp_path):
    pq.write_table(pa.table({"photo": ["a.jpg", "b.jpg"], "cat": [1, 1], "dog": [1.0, None]}), tmp_path / "t.parquet")
    assert given_tags(tags.parse(tmp_path / "t.parquet")) == BOTH


def test_other_tags_are_unknown_unless_a_photo_is_complete(tmp_path):
    text = "image,tags,complete\na.jpg,cat;dog,\nb.jpg,cat,1\nc.jpg,,true\nd.jpg,,0\n"
    data = table(tmp_path, text).to_dataset()
    assert known_labels(data) == {
        "a.jpg": {"cat": True, "dog": True},
        "b.jpg": {"cat": True, "dog": False},
        "c.jpg": {"cat": False, "dog": False},
        "d.jpg": {},
    }
    everything = table(tmp_path, text, absent_means="absent").to_dataset()
    assert known_labels(everything)["d.jpg"] == {"cat": False, "dog": False}


def test_a_value_column_says_what_is_absent(tmp_path):
    text = "image,label,value\na.jpg,cat,1\na.jpg,dog,0\nimage,label,value\nb.jpg,dog,\n"  # two files that were joined
    data = table(tmp_path, text).to_dataset()
    assert known_labels(data) == {"a.jpg": {"cat": True, "dog": False}, "b.jpg": {"dog": None}}


def test_zero_beside_blank_is_absent_and_zero_beside_one_is_unknown_with_a_warning(tmp_path):
    assert given_tags(table(tmp_path, "image,cat,dog\na.jpg,1,0\nb.jpg,,1\n"))["a.jpg"] == {"cat": True, "dog": False}
    found = table(tmp_path, "image,cat,dog\na.jpg,1,0\nb.jpg,0,1\n")
    assert given_tags(found) == {"a.jpg": {"cat": True}, "b.jpg": {"dog": True}}
    assert "0 was read as unknown" in found.warnings[0]
    checked = table(tmp_path, "image,cat,dog\na.jpg,1,0\nb.jpg,0,1\n", absent_means="absent")
    assert given_tags(checked)["a.jpg"] == {"cat": True, "dog": False}
    assert checked.warnings == ()


def test_minus_one_takes_a_coding(tmp_path):
    text = "image,cat,dog\na.jpg,1,-1\nb.jpg,0,1\n"
    with pytest.raises(DatasetError, match=r"holds -1.*coding='canonical'.*coding='observed'"):
        table(tmp_path, text)
    assert given_tags(table(tmp_path, text, coding="observed"))["a.jpg"] == {"cat": True, "dog": False}
    assert given_tags(table(tmp_path, text, coding="canonical"))["b.jpg"] == {"cat": False, "dog": True}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('image,tags\na.jpg,"dog, person"\nb.jpg,dog;cat\nc.jpg,cat\n', r"not clear whether ';' and ','.*separator="),
        ("image,label,tags\na.jpg,cat,big\n", "several columns that may hold tags, 'label' and 'tags'.*tag_column="),
        ("image,label\na.jpg,0\nb.jpg,1\n", r"holds only 1, 0.*tag_column=label.*class_columns=\[\"label\"\]"),
        ("x,label\na,cat\nb,dog\n", "which column of .* names the photos.*image_column="),
        ("image,x\na.jpg,red cat\n", "which column of .* holds tags.*tag_column="),
        ("a.jpg,cat\nb.jpg,dog\n", "first line of .* has 'a.jpg', which looks like a photo"),
        ("image,tags,split\na.jpg,dog,cat,train\n", "line 2: found 4 cells, but the header has 3; .*quotes"),
        ("image,tags\na.jpg,b.jpg,cat\n", "line 2: found 3 cells, but the header has 2; .*quotes"),
        ("sep=;\nimage;tag\na.jpg;cat;dog\n", "line 3: found 3 cells"),
        ("image,tag,value\na.jpg,cat,1\nb.jpg,dog,0\nb.jpg,cat,maybe\n", "line 4: found 'maybe' in column 'value'"),
        ("image,tags\n", "has no rows"),
        ("image,tags\na.jpg,\n", "has no tag in any row"),
        ("image,tags\n,cat\n", "line 2: found no photo in column 'image'"),
        ("image,tag,value\na.jpg,cat,1\na.jpg,cat,0\n", "line 3: found tag 'cat' of photo 'a.jpg' in another state"),
        ("image,tag,split\na.jpg,cat,train\na.jpg,dog,val\n", "line 3: .* a photo belongs to one split"),
        ("image,tag,complete\na.jpg,cat,maybe\n", "line 2: found 'maybe' in column 'complete'"),
    ],
)
def test_what_could_make_wrong_labels_is_refused(tmp_path, text, message):
    with pytest.raises(DatasetError, match=message):
        table(tmp_path, text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_column": "photo"}, "no column 'photo' for image_column=; its columns are 'image', 'tags'"),
        ({"separator": ""}, "separator is empty"),
        ({"tag_column": "tags", "class_columns": ["tags"]}, "give one of the two"),
        ({"coding": "blank"}, "coding= is for columns of classes"),
        ({"separator": ";", "class_columns": ["tags"]}, "separator= is for a column of tags"),
        ({"coding": "true", "absent_means": "absent"}, "leave absent_means out"),
        ({"absent_means": "maybe"}, "give one of unknown, absent"),
        ({"classes": ["dog"]}, "has tag 'cat', which is not among the classes"),
    ],
)
def test_options_that_do_not_fit(tmp_path, options, message):
    text = "image,tags\na.jpg,cat\n"
    with pytest.raises(TagfillError, match=message):
        table(tmp_path, text, **options)


def test_a_comma_in_a_name_is_kept_and_named(tmp_path):
    found = table(tmp_path, 'image,label\na.jpg,"cup, red"\nb.jpg,spoon\nb.jpg,Spoon\n')
    assert found.classes == ("Spoon", "cup, red", "spoon")
    assert ["'cup, red'" in found.warnings[0], "'Spoon' and 'spoon'" in found.warnings[1]] == [True, True]


def test_spaces_do_not_separate_but_are_pointed_out(tmp_path):
    found = table(tmp_path, "image,tags\na.jpg,haze primary\nb.jpg,haze water\nc.jpg,primary\n")
    assert found.classes == ("haze primary", "haze water", "primary")
    assert "separator=' '" in found.warnings[0]
    assert table(tmp_path, "image,tags\na.jpg,haze primary\n", separator=" ").classes == ("haze", "primary")
    slashes = table(tmp_path, "image,tag\na.jpg,cat/dog\nb.jpg,dog/cow\nc.jpg,cat\n")
    assert (len(slashes.classes), "separator='/'" in slashes.warnings[0]) == (3, True)


@pytest.fixture
def photos(tmp_path):
    for name in ("a.jpg", "b.jpg", "more/c.jpg", "more/d.JPG", "old/d.jpg"):
        write_picture(tmp_path / "photos" / name)
    return tmp_path / "photos"


def test_photos_without_a_row_join_and_missing_ones_are_named(tmp_path, photos):
    found = table(tmp_path, "image,tag\na.jpg,cat\nmore/c.jpg,dog\ngone.jpg,dog\n").with_photos(photos)
    assert (found.missing, found.untagged) == (("gone.jpg",), ("b.jpg", "more/d.JPG", "old/d.jpg"))
    assert "1 of 3 photos of the table are not below" in found.warnings[0]
    assert "untagged   3 more photos without a row in the table" in str(found)
    data = found.to_dataset(split="pool")
    assert known_labels(data)["b.jpg"] == {}
    assert splits(data)["b.jpg"] == "pool"
    assert data.names() == ["a.jpg", "more/c.jpg", "b.jpg", "more/d.JPG", "old/d.jpg"]


def test_photos_are_found_without_folders_in_any_case_and_with_another_ending(tmp_path, photos):
    names = ["photos/a.jpg", str(photos / "b.jpg"), "c", "x\\y\\d.JPG"]
    text = "image,tag\n" + "".join(f"{name},cat\n" for name in names)
    found = table(tmp_path, text).with_photos(photos)
    assert [photo.image for photo in found.photos] == ["a.jpg", "b.jpg", "more/c.jpg", "more/d.JPG"]
    others = table(tmp_path, "image,tag\nA.JPG,cat\nb.jpeg,cat\nMORE/C.HEIC,cat\nOld/D.jpg,cat\n").with_photos(photos)
    assert [photo.image for photo in others.photos] == ["a.jpg", "b.jpg", "more/c.jpg", "old/d.jpg"]


def test_photos_that_are_not_clear_are_left_out_and_named(tmp_path, photos):
    text = "image,tag\nx/a.jpg,cat\ny/a.jpg,dog\nb.jpg,cat\nd,cat\nz.jpg,cat\n"
    found = table(tmp_path, text).with_photos(photos)
    assert found.missing == ("x/a.jpg", "y/a.jpg", "d", "z.jpg")
    missing, ambiguous, repeated = found.warnings
    assert "1 of 5 photos of the table are not below" in missing
    assert "'d' could be 'more/d.JPG' or 'old/d.jpg'" in ambiguous
    assert "'x/a.jpg', 'y/a.jpg'; write names with their folders" in repeated


def test_no_photo_at_all_is_an_error(tmp_path, photos):
    with pytest.raises(
        DatasetError,
        match=r"None of the 1 photos in column 'image', such as 'z.jpg', is below .* such as 'a.jpg'; check",
    ):
        table(tmp_path, "image,tag\nz.jpg,cat\n").with_photos(photos)


def test_reading_says_what_was_understood_and_warns(tmp_path, photos):
    said = []

    class Saying:
        bar = staticmethod(SILENT.bar)
        say = staticmethod(said.append)

    (tmp_path / "tags.csv").write_text("image,tag\na.jpg,Cat\nb.jpg,cat\n")
    with pytest.warns(TagfillWarning, match="'Cat' and 'cat'"):
        data = tags.read(tmp_path / "tags.csv", root=photos, progress=Saying())
    assert said == [
        "tags: 2 photos, 2 tags, 1.0 per photo\n"
        "  photos     'image'\n"
        "  tags       'tag', one per row\n"
        "  untagged   3 more photos without a row in the table"
    ]
    assert len(data) == 5


def test_paths_that_lead_out_of_the_root_are_refused(tmp_path):
    with pytest.raises(DatasetError, match="is not a path below the image root"):
        table(tmp_path, "image,tag\n../a.jpg,cat\n").to_dataset()


ONE_TABLE = st.one_of(label_states(states=(True, "unknown")), label_states(states=(True, False)))


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
@given(data=ONE_TABLE)
@quick
def test_round_trip_with_nasty_names(tmp_path, suffix, data):
    tags.write(data, tmp_path / f"a{suffix}")
    back = tags.parse(tmp_path / f"a{suffix}", classes=data.classes, tag_column="tags").to_dataset()
    assert known_labels(back) == known_labels(data)
    assert splits(back) == splits(data)


NASTY = st.text("abZ7,;|[]\"' é猫-", min_size=1, max_size=6).map(str.strip).filter(bool)


@given(photos=st.lists(st.lists(NASTY, max_size=3, unique=True), min_size=1, max_size=5).filter(any))
@quick
def test_lists_keep_any_name(tmp_path, photos):
    lines = [f"{at}.jpg,{_quoted(its)}\n" for at, its in enumerate(photos)]
    found = table(tmp_path, "image,tags\n" + "".join(lines))
    assert [list(photo.states) for photo in found.photos] == photos


def _quoted(names):
    return '"' + json.dumps(names).replace('"', '""') + '"'


def test_a_class_with_a_separator_is_written_as_a_list(tmp_path):
    data = dataset({"a.jpg": {"cup, red": True}}, ("cup, red",))
    tags.write(data, tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == 'image,tags,split,complete\na.jpg,"[""cup, red""]",train,1\n'
    with pytest.raises(DatasetError, match="Class 'cup, red' contains the separator ','"):
        tags.write(data, tmp_path / "b.csv", separator=",")


def test_what_cannot_be_expressed_is_refused_before_anything_is_written(tmp_path):
    data = dataset({"a.jpg": {"cat": True, "dog": False}}, ("bird", "cat", "dog"))
    with pytest.raises(DatasetError, match=r"a\.jpg has 1 absent and 1 unknown tags; absent_means='absent'"):
        tags.write(data, tmp_path / "a.csv")
    assert not list(tmp_path.iterdir())
    tags.write(data, tmp_path / "a.csv", absent_means="absent")
    assert (tmp_path / "a.csv").read_text().splitlines()[1] == "a.jpg,cat,train,1"
    tags.write(data, tmp_path / "a.csv", absent_means="unknown")
    assert (tmp_path / "a.csv").read_text().splitlines()[1] == "a.jpg,cat,train,"
    with pytest.raises(TagfillError, match=r"should end in \.csv or \.tsv"):
        tags.write(data, tmp_path / "a.xlsx")
    with pytest.raises(DatasetError, match="cannot express 'cannot tell'"):
        tags.write(dataset({"a.jpg": {"cat": None}}, ("cat",)), tmp_path / "c.csv")
    with pytest.raises(DatasetError, match="begins or ends with a blank"):
        tags.write(dataset({"a.jpg": {" cat": True}}, (" cat",)), tmp_path / "c.csv")


FORMULAS = ("=1+1", "+cat", "-dog", "@owl")


@pytest.mark.parametrize("name", ["tags", "csv", "wide-csv"])
def test_names_that_a_spreadsheet_would_run_can_be_written_as_text(tmp_path, name):
    data = dataset({"=a.jpg": dict.fromkeys(FORMULAS, True)}, FORMULAS)
    write = formats.get(name).write
    write(data, tmp_path / "plain.csv")
    write(data, tmp_path / "safe.csv", spreadsheet=True)
    plain, safe = ([*csv.reader((tmp_path / f"{kind}.csv").read_text().splitlines())] for kind in ("plain", "safe"))
    begins = ("=", "+", "-", "@")
    assert [cell for row in plain for cell in row if cell.startswith(begins)]
    assert [cell for row in safe for cell in row if cell.startswith(begins)] == []
    assert [[cell.removeprefix("'") for cell in row] for row in safe] == plain


def test_tags_without_a_dataset_can_be_written_for_spreadsheets(tmp_path):
    tags.write_cells({"=a.jpg": ["@cat", "dog"]}, tmp_path / "tags.csv", spreadsheet=True)
    assert (tmp_path / "tags.csv").read_text() == "image,tags\n'=a.jpg,'@cat;dog\n"
