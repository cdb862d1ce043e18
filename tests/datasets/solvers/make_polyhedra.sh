#!/bin/sh
# Polyhedra of OpenFOAM (openfoam 1912 of Debian): heat conduction (laplacianFoam) on the
# dual mesh of a box (polyDualMesh), and in a box with a ball (snappyHexMesh), as
# foamToVTK writes them. Usage: make_polyhedra.sh FOLDER; here are the .vtm files and
# folders of FOLDER/dual/VTK and FOLDER/snappy/VTK, without the _1 of the time.
set -e
export WM_PROJECT_DIR=${WM_PROJECT_DIR:-/usr/share/openfoam}

head() { printf 'FoamFile { version 2.0; format ascii; class %s; object %s; }\n' "$1" "$2"; }

make_case() { # FOLDER CELLS WALLS
  mkdir -p "$1"/0 "$1"/constant "$1"/system
  cd "$1"
  { head dictionary blockMeshDict; cat <<X
vertices ((0 0 0) (3 0 0) (3 1 0) (0 1 0) (0 0 1) (3 0 1) (3 1 1) (0 1 1));
blocks (hex (0 1 2 3 4 5 6 7) ($2) simpleGrading (2 1 1));
boundary (
 inlet { type patch; faces ((0 4 7 3)); }
 outlet { type patch; faces ((1 2 6 5)); }
 walls { type wall; faces ((0 1 5 4) (3 7 6 2) (0 3 2 1) (4 5 6 7)); } );
X
  } > system/blockMeshDict
  { head dictionary controlDict; echo 'application laplacianFoam; startFrom startTime;
startTime 0; stopAt endTime; endTime 3; deltaT 3; writeControl timeStep; writeInterval 1;
writeFormat ascii; timeFormat general;'; } > system/controlDict
  { head dictionary fvSchemes; echo 'ddtSchemes { default steadyState; }
gradSchemes { default Gauss linear; } divSchemes { default none; }
laplacianSchemes { default Gauss linear corrected; }
interpolationSchemes { default linear; } snGradSchemes { default corrected; }'
  } > system/fvSchemes
  { head dictionary fvSolution; echo 'solvers { T { solver PCG; preconditioner DIC;
tolerance 1e-9; relTol 0; } } SIMPLE { nNonOrthogonalCorrectors 5; }'
  } > system/fvSolution
  { head dictionary transportProperties; echo 'DT [0 2 -1 0 0 0 0] 1;'
  } > constant/transportProperties
  { head volScalarField T; cat <<X
dimensions [0 0 0 1 0 0 0]; internalField uniform 0; boundaryField {
 inlet { type fixedValue; value uniform 1; } outlet { type fixedValue; value uniform 0; }
 $3 { type fixedValue; value uniform 0; } }
X
  } > 0/T
}

ball() {
  { head dictionary snappyHexMeshDict; cat <<X
castellatedMesh true; snap true; addLayers false;
geometry { ball { type searchableSphere; centre (1.6 0.5 0.5); radius 0.3; } }
castellatedMeshControls { maxLocalCells 10000; maxGlobalCells 10000; minRefinementCells 0;
 nCellsBetweenLevels 1; features (); refinementSurfaces { ball { level (1 1); } }
 resolveFeatureAngle 30; refinementRegions { } locationInMesh (0.11 0.12 0.13);
 allowFreeStandingZoneFaces true; }
snapControls { nSmoothPatch 3; tolerance 2; nSolveIter 30; nRelaxIter 5; }
addLayersControls { layers { } relativeSizes true; expansionRatio 1; finalLayerThickness
 0.3; minThickness 0.1; nGrow 0; featureAngle 60; nRelaxIter 3; nSmoothSurfaceNormals 1;
 nSmoothNormals 3; nSmoothThickness 10; maxFaceThicknessRatio 0.5; nBufferCellsNoExtrude 0;
 maxThicknessToMedialRatio 0.3; minMedianAxisAngle 90; nLayerIter 50; }
meshQualityControls { maxNonOrtho 70; maxBoundarySkewness 20; maxInternalSkewness 4;
 maxConcave 80; minVol 1e-13; minTetQuality -1; minArea -1; minTwist 0.01;
 minDeterminant 0.001; minFaceWeight 0.02; minVolRatio 0.01; minTriangleTwist -1;
 nSmoothScale 4; errorReduction 0.75; relaxed { maxNonOrtho 75; } }
mergeTolerance 1e-6;
X
  } > system/snappyHexMeshDict
}

finish() { # with OpenFOAM's own volumes and centres
  postProcess -latestTime -func writeCellVolumes >> log
  postProcess -latestTime -func writeCellCentres >> log
  foamToVTK -latestTime -fields '(T V C)' >> log
}

mkdir -p "$1"
(
  make_case "$1/dual" '4 2 2' walls
  blockMesh > log; polyDualMesh 30 -overwrite >> log
  laplacianFoam >> log; finish
)
(
  make_case "$1/snappy" '9 3 3' '"walls|ball"'
  ball
  blockMesh > log; snappyHexMesh -overwrite >> log
  laplacianFoam >> log; finish
)
