#!/bin/bash
# Writes times/: three frames of OpenFOAM's flow in a cavity of 16 cells, by foamToVTK
# and by foamToEnsight. Run it in this folder, with OpenFOAM installed.
set -e
export WM_PROJECT_DIR=${WM_PROJECT_DIR:-/usr/share/openfoam}
here=$PWD
case=$(mktemp -d)/cavity
mkdir -p "$case/0" "$case/system" "$case/constant"
cd "$case"
head() { echo "FoamFile { version 2.0; format ascii; class $1; object $2; }"; }
{
  head dictionary blockMeshDict
  echo "scale 0.1;
vertices ((0 0 0) (1 0 0) (1 1 0) (0 1 0) (0 0 0.1) (1 0 0.1) (1 1 0.1) (0 1 0.1));
blocks (hex (0 1 2 3 4 5 6 7) (4 4 1) simpleGrading (1 1 1)); edges ();
boundary (lid { type wall; faces ((3 7 6 2)); }
  walls { type wall; faces ((0 4 7 3) (2 6 5 1) (1 5 4 0)); }
  sides { type empty; faces ((0 3 2 1) (4 5 6 7)); });"
} > system/blockMeshDict
{
  head dictionary controlDict
  echo "application icoFoam; startFrom startTime; startTime 0; stopAt endTime;
endTime 0.5; deltaT 0.05; writeControl timeStep; writeInterval 5; writeFormat ascii;
writePrecision 6; timeFormat general; timePrecision 6;"
} > system/controlDict
{
  head dictionary fvSchemes
  echo "ddtSchemes { default Euler; } gradSchemes { default Gauss linear; }
divSchemes { default none; div(phi,U) Gauss linear; }
laplacianSchemes { default Gauss linear orthogonal; }
interpolationSchemes { default linear; } snGradSchemes { default orthogonal; }"
} > system/fvSchemes
{
  head dictionary fvSolution
  echo "solvers { p { solver PCG; preconditioner DIC; tolerance 1e-6; relTol 0.05; }
  pFinal { solver PCG; preconditioner DIC; tolerance 1e-6; relTol 0; }
  U { solver smoothSolver; smoother symGaussSeidel; tolerance 1e-5; relTol 0; } }
PISO { nCorrectors 2; nNonOrthogonalCorrectors 0; pRefCell 0; pRefValue 0; }"
} > system/fvSolution
{
  head dictionary transportProperties
  echo "nu 0.01;"
} > constant/transportProperties
{
  head volScalarField p
  echo "dimensions [0 2 -2 0 0 0 0]; internalField uniform 0; boundaryField {
lid { type zeroGradient; } walls { type zeroGradient; } sides { type empty; } }"
} > 0/p
{
  head volVectorField U
  echo "dimensions [0 1 -1 0 0 0 0]; internalField uniform (0 0 0); boundaryField {
lid { type fixedValue; value uniform (1 0 0); } walls { type noSlip; }
sides { type empty; } }"
} > 0/U
blockMesh && icoFoam && foamToVTK && foamToEnsight
rm -rf "$here/times"
mkdir "$here/times"
mv VTK EnSight "$here/times"
