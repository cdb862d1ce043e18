"""Cases in folders: one file of each, a table above, and the last time."""

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose

from opjax import files
from opjax.files import cases, folders
from opjax.files.series import read_series
from tests.datasets.reading import read, read_one, refused
from tests.refused import value_error
from tests.solved import TIMES, blocks, pyvista, solved, table


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ("case,load", "case_{}"),
        ("folder,load", "./case_{}/"),
        ("file,load", "case_{}/VTK"),
    ],
)
def test_a_folder_of_cases_has_a_sample_of_each_and_a_table_above(head, name, tmp_path):
    solved(tmp_path, times=(200,))
    table(tmp_path, head=head, name=name)
    options = files.ReadOptions(target="p", scalars="load", location="cells")
    for given in (tmp_path, tmp_path / "*", tmp_path / "*" / "VTK"):
        found = files.read(given, options)
        assert [sample.scalars for sample in found] == [[0.5], [1.5], [2.5]]
        assert found[1].name == str(tmp_path / "case_1" / "VTK" / "case_1_200.vtm")


@pytest.mark.parametrize("listed", [True, False])
def test_steady_cases_are_read_at_their_last_time_and_a_warning_says_so(
    listed, tmp_path
):
    solved(tmp_path, listed=listed)
    said = r"at their last time, such as .*case_0_200.vtm: 6 files of earlier times"
    with pytest.warns(UserWarning, match=said):
        found = files.find(tmp_path)
    assert [file.name for file in found] == [f"case_{i}_200.vtm" for i in range(3)]
    if listed:
        for given in ("*/VTK", "*/VTK/*.vtm"):
            with pytest.warns(UserWarning, match=said):
                assert files.find(tmp_path / given) == found
        with pytest.warns(UserWarning, match="2 files of earlier times"):
            (last,) = files.find(tmp_path / "case_1/VTK/case_1.vtm.series")
        assert last == found[1]


def test_a_time_that_is_named_is_read(tmp_path):
    solved(tmp_path)
    one = tmp_path / "case_1" / "VTK" / "case_1_0.vtm"
    assert files.find(one) == [one]
    rows = [f"case_1_{time}.vtm,{time}" for time in TIMES]
    table(one.parent, rows, "file,time")
    found = read(one.parent, target="p", scalars="time")
    assert [sample.scalars for sample in found] == [[0], [100], [200]]


def test_rows_of_files_say_which_times_are_read(tmp_path):
    folder = solved(tmp_path, count=1) / "case_0" / "VTK"
    table(folder, ["case_0_100.vtm,3"], "file,load")
    with pytest.warns(UserWarning, match="2 files of earlier times"):
        sample = read_one(folder, target="p", scalars="load")
    assert sample.name.endswith("case_0_100.vtm")


def test_files_that_may_be_samples_are_no_times_unless_the_table_says_so(tmp_path):
    solved(tmp_path, listed=False, stems=False)
    with pytest.raises(
        ValueError, match=r"case_0 has 3 sample files.* VTK/flow_0.vtm and VTK/flow_1"
    ):
        files.find(tmp_path)
    table(tmp_path)
    with pytest.warns(UserWarning, match="6 files of earlier times"):
        found = files.find(tmp_path)
    assert {file.name for file in found} == {"flow_200.vtm"}


def test_a_collection_says_what_the_times_of_a_case_are(tmp_path):
    for case in "ab":
        (tmp_path / case / "out").mkdir(parents=True)
        mesh = pyvista.ImageData(dimensions=(3, 3, 1)).cast_to_unstructured_grid()
        rows = ""
        for name, time in (("x", 3), ("y", 12), ("z", 5)):
            mesh.save(tmp_path / case / "out" / f"{name}.vtu")
            rows += f'<DataSet timestep="{time}" file="out/{name}.vtu"/>'
        text = f"<VTKFile type='Collection'><Collection>{rows}</Collection></VTKFile>"
        (tmp_path / case / "u.pvd").write_text(text)
    with pytest.warns(UserWarning, match="4 files of earlier times"):
        found = files.find(tmp_path)
    assert [file.name for file in found] == ["y.vtu", "y.vtu"]
    (tmp_path / "a" / "out" / "y.vtu").unlink()
    with pytest.raises(FileNotFoundError, match="'out/y.vtu', its last frame, is miss"):
        files.find(tmp_path / "a" / "u.pvd")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (["case_0,1", "case_9,1"], "line 3 names case_9, which does not exist"),
        (["case_0,1", "case_1,1"], "cases.csv has no row for case_2; add it"),
        (["case_0,1", "case_0/,1"], "line 3 lists case_0 again"),
    ],
)
def test_rows_without_a_folder_and_folders_without_a_row_are_named(
    rows, said, tmp_path
):
    solved(tmp_path, times=(200,))
    table(tmp_path, rows)
    refused(tmp_path, said, target="p", scalars="load")


def test_a_case_that_is_not_converted_is_refused_or_told_by_name(tmp_path):
    solved(tmp_path, times=(), listed=False)
    (tmp_path / "plots").mkdir()
    with pytest.raises(FileNotFoundError, match="such as case_0; in each: .*foamToVTK"):
        files.find(tmp_path)
    blocks(tmp_path / "case_0" / "VTK" / "case_0_1.vtm", 1, 1)
    with pytest.warns(
        UserWarning, match=r"2 of 4 folders .* case_1, case_2\. .*foamTo"
    ):
        assert len(files.find(tmp_path)) == 1
    table(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"case_1, case_2\. .* rows for them"):
        files.find(tmp_path)


def test_the_table_above_divides_cases(tmp_path):
    solved(tmp_path, times=(1,))
    rows = ["case_0,train,1", "case_1,validation,2", "case_2,test,3"]
    table(tmp_path, rows, "folder,split,load")
    divided = files.splits(
        [tmp_path], options=files.ReadOptions(target="p", scalars="load")
    )
    assert divided.test[0].name.endswith("case_2_1.vtm")
    assert cases.names_in(tmp_path) == {"case_0", "case_1", "case_2"}


def test_results_keep_the_folders_of_their_cases(tmp_path):
    solved(tmp_path, times=(1,), stems=False)
    found = files.find(tmp_path)
    kept = folders.places([tmp_path], found)
    assert [str(kept[file]) for file in found] == ["case_0", "case_1", "case_2"]
    by_pattern = folders.places([tmp_path / "*" / "VTK"], found)
    assert by_pattern == kept
    flat = folders.places([tmp_path / "*"], found[:1])
    assert str(flat[found[0]]) == "."


@pytest.mark.parametrize(
    ("given", "listed"),
    [(".", True), ("*/VTK/*.vtm", True), ("*/VTK/*.series", True), ("*", False)],
)
def test_series_of_cases_have_cells_and_patches(given, listed, tmp_path):
    solved(tmp_path, count=2, listed=listed)
    table(tmp_path, ["case_0,3", "case_1,4"])
    options = files.ReadOptions(
        target="p",
        scalars="load",
        location="cells",
        boundary_names="wall",
        geometry="distance",
    )
    for in_memory in (True, False):
        found, channels = read_series(tmp_path / given, options, in_memory=in_memory)
        assert [one.scalars for one in found] == [{"load": 3}, {"load": 4}]
        assert found[0].times.tolist() == [0, 1, 2]
        centers = np.array([[0.5, 0.5, 0.5], [1.5, 0.5, 0.5]])
        assert_allclose(found[0].mesh_points[:2], centers)
        assert_allclose(found[1].values[2][:2, 0], [210.5, 211.5])
        assert_allclose(found[0].quadrature_weights, 1)
        assert channels["features"] == ("boundary_wall", "distance_wall")
        assert_allclose(found[0].features, [[1, 0.5]] * 6)


# Files in the folder of each case; whether a row for the folder says which one is read.
SEVERAL = {
    "results": (["fluid.vtu", "solid.vtu"], None),
    "times": (["0/data.vtu", "0.1/data.vtu", "10/data.vtu", "2/data.vtu"], 2),
    "backups": (["case_{}.vtu", "case_{}_old.vtu"], None),
    "iterations": (["u_9.vtu", "u_10.vtu"], 1),
}


@pytest.mark.parametrize("kind", SEVERAL)
@pytest.mark.filterwarnings("ignore:Steady cases are read at their last time")
def test_every_way_to_choose_files_of_cases_that_an_error_names_works(kind, tmp_path):
    names, last = SEVERAL[kind]
    every = [[tmp_path / f"case_{i}" / n.format(i) for n in names] for i in range(3)]
    for file in (file for case in every for file in case):
        file.parent.mkdir(parents=True, exist_ok=True)
        mesh = pyvista.ImageData(dimensions=(3, 3, 1)).cast_to_unstructured_grid()
        mesh.save(file)
    with value_error("case_0 has [24] sample files") as error:
        files.find(tmp_path)
    said = str(error.value)
    assert ("add a row for the folder" in said) == (last is not None)
    rows = [f"case_{i},{i}" for i in range(3)]
    if last is not None:
        table(tmp_path, rows)
        assert files.find(tmp_path) == [case[last] for case in every]
    pattern, row = re.search(r"pass '(.*?)', or .*cases.csv, (\S+)\. If", said).groups()  # pyright: ignore
    first = [case[kind == "iterations"] for case in every]
    other = [case[1] for case in every] if kind == "backups" else first
    assert files.find(pattern) == other
    table(tmp_path, [f"{row.replace('case_0', f'case_{i}')},{i}" for i in range(3)])
    assert files.find(tmp_path) == first
    found = read(tmp_path, scalars="load")
    assert [sample.scalars.tolist() for sample in found] == [[0], [1], [2]]  # pyright: ignore
    table(tmp_path, [f"case_0/../{row},1"])  # out of its folder
    with value_error("case_0 has [24] sample files"):
        files.find(tmp_path)
    (every_sample,) = re.findall(r"a sample, pass '(.*?)'", said)
    (tmp_path / "cases.csv").unlink()
    assert len(files.find(every_sample)) == sum(map(len, every))


@pytest.mark.parametrize("depth", ["", "case_{}/"])
def test_the_pattern_of_one_of_several_formats_finds_its_files(depth, tmp_path):
    mesh = pyvista.ImageData(dimensions=(3, 3, 1)).cast_to_unstructured_grid()
    for i in range(4):
        file = tmp_path / f"{depth.format(i)}{i}.vt{'uk'[i % 2]}"
        file.parent.mkdir(exist_ok=True)
        mesh.save(file)
    with value_error(r"have 2 \.vt., 2 \.vt. files") as error:
        files.find(tmp_path)
    pattern = re.search(r"only one format, '(.*)'", str(error.value))[1]  # pyright: ignore
    assert [file.name for file in files.find(pattern)] == ["0.vtu", "2.vtu"]


def test_a_folder_with_parts_of_a_parallel_run_is_called_that(tmp_path):
    for part in ("case_0/processor0", "case_0/processor1"):
        (tmp_path / part).mkdir(parents=True)
        (tmp_path / part / "out.vtu").write_text("a part")
    said = r"only folders \['case_0'\].* case_0/processor0 has a part of a parallel run"
    with pytest.raises(FileNotFoundError, match=said.replace(" case", ".*case")):
        files.find(tmp_path)
